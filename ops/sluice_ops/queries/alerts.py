"""Makes the lines of alerts from their record. Pure."""

import time
from typing import Any

from sluice_ops.model.alert import Alert, AlertRecord, AlertRequests, Severity
from sluice_ops.model.resources import Frozen
from sluice_ops.model.wording import counted
from sluice_ops.queries.formats import ago


class AlertLine(Frozen):
    """One alert that lasts."""

    key: str
    severity: str
    state: str
    """told, silenced, explained by KEY, waits (it has not lasted long enough), or ends."""
    since: float
    happened: str
    did: str
    do: str
    link: str
    page: str


class SilenceLine(Frozen):
    """One silence that lasts."""

    key: str
    until: float
    by: str


def shown(record: AlertRecord, requests: AlertRequests) -> dict[str, Any]:
    """Return the alerts that last and ended, the silences and the channels as JSON values."""
    return {
        "alerts": [line.model_dump(mode="json") for line in lines(record, requests)],
        "ended": [alert.model_dump(mode="json") for alert in record.ended],
        "silences": [line.model_dump(mode="json") for line in silence_lines(requests)],
        "channels": {name: health.model_dump(mode="json") for name, health in record.channels.items()},
        "waiting": len(record.messages),
    }


def lines(record: AlertRecord, requests: AlertRequests) -> list[AlertLine]:
    """Describe the alerts that last, the most urgent first, then the oldest."""
    now = time.time()
    order = sorted(
        record.alerts.values(),
        key=lambda alert: (
            alert.fired_at is None,
            alert.severity is not Severity.CRITICAL,
            alert.since,
            alert.key,
        ),
    )
    return [
        AlertLine(
            key=alert.key,
            severity=alert.severity,
            state=_state(alert, silenced=requests.silenced(alert.key, now)),
            since=alert.since,
            happened=alert.happened,
            did=alert.did,
            do=alert.do,
            link=alert.link,
            page=alert.page,
        )
        for alert in order
    ]


def silence_lines(requests: AlertRequests) -> list[SilenceLine]:
    """Describe the silences that last."""
    return [
        SilenceLine(key=key, until=silence.until, by=silence.by)
        for key, silence in requests.silences.items()
        if silence.until > time.time()
    ]


def notes(record: AlertRecord) -> list[str]:
    """Return the lines of `sluice status`: how many alerts last, and the channels that are dead."""
    fired = [alert for alert in record.alerts.values() if alert.fired_at is not None]
    urgent = sum(1 for alert in fired if alert.severity is Severity.CRITICAL)
    number = counted(len(fired), "alert")
    return [
        *([f"{number}, {urgent} of them critical: `sluice alert` lists them"] if fired else []),
        *(
            f"The channel {name} takes no alerts for {ago(health.failed_since)}: {health.error}. "
            f"Correct `alerts` in the site file, then: sluice alert test {name}"
            for name, health in record.channels.items()
            if health.failed_since is not None
        ),
        *(
            [f"{record.dropped} messages of alerts were dropped, because no channel took them for a day"]
            if record.dropped
            else []
        ),
    ]


def _state(alert: Alert, *, silenced: bool) -> str:
    if alert.gone_at is not None:
        return "ends"
    if silenced:
        return "silenced"
    if alert.told_at is not None:
        return "told"
    if alert.explained_by is not None:
        return f"explained by {alert.explained_by}"
    return "waits"
