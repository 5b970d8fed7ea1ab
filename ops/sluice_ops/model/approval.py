"""Approval: which changes wait for a second person, what a waiting change asks, and the answer."""

from typing import Annotated

from pydantic import AfterValidator, Field

from sluice_ops.model.ids import HostName, TierName
from sluice_ops.model.resources import Frozen

PAUSE_ALL = "pause-all"
"""The name in `always` of a pause of every tier."""
OFFERED = frozenset(
    {
        *("burst", "canary", "cordon", "decommission", "drain", "drain-to-empty", "game-day", "leave"),
        *(
            "migrate",
            "pause",
            PAUSE_ALL,
            "rebalance",
            "reboot",
            "reboot-hosts",
            "repair",
            "repartition",
            "resume",
            "return",
            "scale",
            "shift",
            "upgrade",
        ),
        "write-off",
    }
)
"""The names that `always` takes: every kind of change that has steps and that people request."""
WITHIN_SECONDS = 3600.0
WAITED = "waited_seconds"
"""The detail of a preflight's result that says how long the change waited for approval."""
MOST_SECONDS = 86_400.0
"""The longest time in which an answer may come."""


def _offered(name: str) -> str:
    if name not in OFFERED:
        message = (
            f"{name!r} is no change that can wait for approval: write some of {', '.join(sorted(OFFERED))}"
        )
        raise ValueError(message)
    return name


class ApprovalRule(Frozen):
    """When a change waits until another person than its requester approves it."""

    always: tuple[Annotated[str, AfterValidator(_offered)], ...] = ("write-off", PAUSE_ALL)
    """Changes that always wait: kinds such as `write-off`, or `pause-all`, of every tier."""
    tiers: int | None = Field(default=None, ge=1)
    """A change of at least so many tiers waits. Default: the number of tiers does not matter."""
    hosts: int | None = Field(default=None, ge=1)
    """A change that names at least so many hosts waits. Default: the number does not matter."""
    cost_per_day: float | None = Field(default=None, gt=0)
    """A burst waits if the day (UTC) could cost more, in the currency of `ec2.price_per_hour`.

    Default: `ec2.max_cost_per_day`, which counts beside a larger value, too.
    """
    gap_seconds: float | None = Field(default=None, gt=0)
    """A change with a predicted gap of at least so many seconds waits. Default: no gap matters."""
    alerts: bool = False
    """With `true`, a change that moves, resizes or pauses a tier waits while an alert lasts."""
    within_seconds: float = Field(default=WITHIN_SECONDS, ge=10, le=MOST_SECONDS)
    """Seconds without an answer after which the change ends as refused. Default: an hour."""


class Asked(Frozen):
    """What a waiting change asks another person to approve, and what has become of it."""

    reasons: dict[str, str]
    """The conditions of the rule that the change meets → a sentence for each."""
    plan: str
    """What the change would do, in one sentence."""
    tiers: tuple[TierName, ...] = ()
    """The tiers that the change touches."""
    hosts: tuple[HostName, ...] = ()
    """The hosts that the change names."""
    person: str = ""
    """The person who asked; empty: nobody, as for a scheduled run."""
    before_launch: bool = False
    """Whether a burst asked before its instances were launched, with the step `approval`."""
    within_seconds: float
    """How long the change waits for an answer."""
    approved_by: str = ""
    """Who approved it; empty: nobody yet."""
    began: bool = False
    """Whether the change began after that."""
    waited_seconds: float = 0.0
    """How long it waited until it was approved, which its deadline does not count."""

    @property
    def limit(self) -> str:
        """How long it waits for an answer, such as `60 min`."""
        minutes, seconds = divmod(self.within_seconds, 60)
        return f"{self.within_seconds:g} s" if seconds else f"{minutes:g} min"

    @property
    def nothing(self) -> str:
        """What has happened if the change ends without an approval."""
        return "no instance was launched" if self.before_launch else "nothing was changed"

    @property
    def why(self) -> str:
        """The reasons in one line."""
        return "; ".join(self.reasons.values())


class Answer(Frozen):
    """`changes/<id>/answer`: what another person decided. Written once."""

    approved: bool
    by: str
    """The person, as in the trail: `cli:anna`."""
    why: str = ""
    at: float


def person_of(by: str) -> str:
    """Return the person's name in the name of a requester; empty if a run asked, or the platform.

    `cli:anna` and `airflow:anna` are the same person; `airflow:DAG/RUN` is a run.
    """
    kind, _, name = by.partition(":")
    return name if kind in {"cli", "airflow"} and "/" not in name else ""
