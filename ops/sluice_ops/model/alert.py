"""Alerts: what the site file says about them, their node in the channel, and what people request.

`planning.alerts` decides which alert is told, and decision 76 explains it.
"""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from sluice_ops.model.resources import Frozen

FILE = "file:"
"""The prefix of a channel's URL that is in a file of the controllers' machines."""
AIRFLOW, CLI = "airflow:", "cli:"
"""The prefixes of requesters: `airflow:drain_host/manual__1`, `cli:anna`."""
RUNS_WITHOUT_PERSON = ("scheduled__", "asset_triggered__")
"""How the ids of runs begin that Airflow starts by itself."""


def author_reads(by: str, *, dry_run: bool) -> bool:
    """Tell whether a person reads the answer to a request, so that a refusal is no alert.

    This is so on the command line, and for a dry run that a person has triggered in Airflow.
    """
    run = by.removeprefix(AIRFLOW).partition("/")[2]
    return by.startswith(CLI) or (dry_run and not run.startswith(RUNS_WITHOUT_PERSON))


PAGE = "plugin/sluice"
"""The path of the page Sluice below Airflow's address."""
CHANGE_WAITS = "change-waits"
"""The kind of the alert of a change that waits for another person."""


class Severity(StrEnum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    """It wakes a person: records are lost, or do not flow as they should."""
    WARNING = "warning"
    """It has time until the morning: Sluice goes on, with less reserve."""


def _url(url: SecretStr) -> SecretStr:
    if not re.match(rf"{FILE}/.|[A-Za-z][A-Za-z0-9+.-]*://.", url.get_secret_value()):
        message = (
            "this is no address of a channel: write a URL of apprise, such as "
            "mailto://mail.example:25?to=night@example.com&from=sluice@example.com, "
            "or file:/etc/sluice/alerts.url, a file with such a URL"
        )
        raise ValueError(message)
    return url


class AlertChannel(Frozen):
    """One receiver of alerts."""

    url: Annotated[SecretStr, AfterValidator(_url)]
    """A URL of apprise, such as `slack://…` or `mailtos://…`, or `file:/PATH` with such a URL.

    The file need only be readable by the controllers, so that the hosts do not see its password.
    """
    severity: Severity = Severity.WARNING
    """`warning`: all alerts. `critical`: only alerts that wake a person."""
    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9-]*$")
    """The name in `sluice alert`. Default: the scheme of the URL, such as `mailto`."""


class AlertSettings(Frozen):
    """What the controller needs to tell alerts."""

    channels: tuple[AlertChannel, ...] = ()
    """The receivers of alerts. Without one, alerts are in `sluice alert list` only."""
    repeat_seconds: float = Field(default=14_400.0, ge=300)
    """Seconds after which an alert that goes on is told again. Default: four hours."""
    gap_seconds: float = Field(default=60.0, gt=0)
    """The gap in a tier's output, over a handover, above which an alert tells.

    Default: a minute.
    """
    airflow: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """The address of Airflow, for the links in alerts. Default: alerts have no links."""
    connection: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    """The id of this pipeline's connection in Airflow, for the links in alerts.

    Default: the pipeline of Airflow's environment. An Airflow that serves several pipelines needs
    it.
    """

    @property
    def by_name(self) -> dict[str, AlertChannel]:
        """The channels by name; a further channel of the same name gets a number."""
        named: dict[str, AlertChannel] = {}
        for channel in self.channels:
            name = wanted = channel.name or channel.url.get_secret_value().partition(":")[0].lower()
            number = 1
            while name in named:
                number += 1
                name = f"{wanted}-{number}"
            named[name] = channel
        return named


class Condition(Frozen):
    """A bad state that a look at the site found."""

    kind: str
    """The name of its kind in `planning.alerts.catalogue`."""
    subject: str
    """What is in this state, such as `h1` or `counts`."""
    severity: Severity
    wait: float
    """How long the state lasts before its alert is told. Unit: seconds."""
    happened: str
    did: str
    """What the platform did, or does, by itself."""
    do: str
    """What a person has to do, with the exact command."""
    causes: tuple[str, ...] = ()
    """The keys of conditions that explain this one, so that it is not told beside them."""
    link: str = ""
    """The address of a page in Airflow; empty: the site names no Airflow."""
    page: str = ""
    """What the alert is about, as a path of Airflow's page Sluice: `hosts/h1`; empty: none."""
    ends_at: float | None = None
    """For an event: when it is no news any more. Epoch seconds."""
    recovers: bool = True
    """Whether its end is told."""

    @property
    def key(self) -> str:
        """The identity of the alert: two conditions with the same key are the same."""
        return f"{self.kind}:{self.subject}"


def kind_of(key: str) -> str:
    """Return the kind of the alert with this key."""
    return key.partition(":")[0]


class Alert(Condition):
    """One alert: a condition, since when it lasts, and what was told about it. Epoch seconds."""

    since: float
    fired_at: float | None = None
    """When it had lasted long enough to be told; None: not yet."""
    told_at: float | None = None
    """When it was last told; None: never, because it is silenced or explained by another one."""
    gone_at: float | None = None
    """Since when its condition is over; an alert ends a while after that."""
    explained_by: str | None = None
    """The key of the condition that explains this one now."""


class News(StrEnum):
    """What a message tells about its alert."""

    FIRED = "fired"
    REPEATED = "repeated"
    RECOVERED = "recovered"
    TEST = "test"


class Message(Frozen):
    """A message that waits for its delivery."""

    number: int
    """Its number among all messages of the site."""
    key: str
    news: News
    severity: Severity
    title: str
    text: str
    at: float
    to: tuple[str, ...]
    """The channels that have not taken it yet."""


class ChannelHealth(Frozen):
    """What is known of a channel's deliveries."""

    sent_at: float | None = None
    """When it last took a message."""
    failed_since: float | None = None
    """Since when it takes no message; None: the last delivery went well."""
    error: str = ""


class AlertRecord(Frozen):
    """`alerts`: the alerts of the site, and the messages to be sent. The leader writes it."""

    alerts: dict[str, Alert] = Field(default_factory=dict)
    """By key: the alerts that last."""
    ended: tuple[Alert, ...] = ()
    """The last alerts that were told and are over, the newest last."""
    messages: tuple[Message, ...] = ()
    number: int = 0
    """The number of the last message."""
    dropped: int = 0
    """Messages that were dropped because a channel did not take them for a day."""
    channels: dict[str, ChannelHealth] = Field(default_factory=dict)
    tested: str = ""
    """The id of the last test request that was served."""
    results: dict[str, str] = Field(default_factory=dict)
    """The results of that test, by channel: why it failed; empty: the channel took the message."""


class Silence(Frozen):
    """A time in which the alerts of a key are not told."""

    until: float
    by: str
    at: float


class AlertTest(Frozen):
    """A request to send a test message."""

    id: str
    channel: str | None = None
    """The channel to test; None: all channels."""
    by: str


class Report(Frozen):
    """A failure outside the control channel that a task in Airflow reports, so that it is told."""

    what: str
    """What failed, such as `report of nightly_report`."""
    reason: str
    did: str
    do: str
    link: str = ""
    """The address of the task's log."""
    change: str = ""
    """The change whose abort had no result. Once it is aborted, its own alert tells the failure."""
    at: float


class AlertRequests(Frozen):
    """`config/alerts`: what operators have requested of the alerts."""

    silences: dict[str, Silence] = Field(default_factory=dict)
    """By key, which may contain `*`."""
    test: AlertTest | None = None
    reports: dict[str, Report] = Field(default_factory=dict)
    """The last report of each task, by its name."""

    def silenced(self, key: str, now: float) -> bool:
        """Tell whether the alert of a key must not be told now."""
        return any(
            now < silence.until and re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), key)
            for pattern, silence in self.silences.items()
        )
