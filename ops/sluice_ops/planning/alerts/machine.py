"""The state machine of alerts: conditions in, the next record with its messages out. Pure.

Each advance derives from the record alone what was told before, so that a new leader continues.
"""

from collections.abc import Callable, Iterable, Mapping

from sluice_ops.model.alert import (
    Alert,
    AlertRecord,
    AlertRequests,
    ChannelHealth,
    Condition,
    Message,
    News,
    Severity,
)
from sluice_ops.planning.alerts.catalogue import rank

CLEAR_SECONDS = 60.0
"""How long a condition has to be over before its recovery is told: a flapping one is one alert."""
EXPLAINED_SECONDS = 900.0
"""How long another condition explains an effect beyond its own wait. Then the effect is told, too.

By then, the platform should have repaired the effect although the cause lasts.
"""
KEEP_ENDED = 30
MOST_ALERTS = 200
"""The most alerts in the record, which has to stay far below ZooKeeper's limit of 1 MiB."""
MOST_MESSAGES = 100
EXPIRE_SECONDS = 86_400.0
"""How long a message waits for a channel that does not answer."""

Channels = Mapping[str, Severity]
"""Channel → the lowest severity that it takes."""


def advance(  # noqa: PLR0913 - the record, the look, the requests and the site's settings
    record: AlertRecord,
    conditions: Iterable[Condition],
    now: float,
    *,
    requests: AlertRequests,
    channels: Channels,
    repeat_seconds: float,
    unknown: Callable[[Alert], bool] = lambda _alert: False,
) -> AlertRecord:
    """Return the record after one look.

    `unknown` tells the alerts about which this look says nothing; they stay as they are.
    """
    present = {condition.key: condition for condition in conditions}
    alerts: dict[str, Alert] = {}
    ended: list[Alert] = []
    news: list[tuple[News, Alert]] = []
    for key, condition in present.items():
        alert = _present(record.alerts.get(key), condition, present, now)
        due = None if requests.silenced(key, now) else _due(alert, now, repeat_seconds)
        if due is not None:
            alert = alert.model_copy(update={"told_at": now})
            news.append((due, alert))
        alerts[key] = alert
    for key, before in record.alerts.items():
        if key in present:
            continue
        if unknown(before):
            alerts[key] = before
        elif before.fired_at is not None:
            gone = before.model_copy(update={"gone_at": min(now, before.gone_at or now)})
            if now - (gone.gone_at or now) < CLEAR_SECONDS and not _is_old_news(before, now):
                alerts[key] = gone
            elif before.told_at is not None:
                ended.append(gone)
                news += [] if _is_old_news(before, now) else [(News.RECOVERED, gone)]
    after = record.model_copy(
        update={
            "alerts": dict(sorted(_most_urgent(alerts).items())),
            "ended": (*record.ended, *ended)[-KEEP_ENDED:],
        }
    )
    return _with_messages(after, news, now, channels)


def _due(alert: Alert, now: float, repeat_seconds: float) -> News | None:
    """Return what has to be told of an alert that lasts; None: nothing now."""
    if alert.fired_at is None:
        return None
    if alert.told_at is None:
        return News.FIRED
    return News.REPEATED if alert.ends_at is None and now - alert.told_at >= repeat_seconds else None


def _is_old_news(alert: Alert, now: float) -> bool:
    """Tell whether an event is over only because time has passed, so that nothing recovered."""
    return not alert.recovers or (alert.ends_at is not None and now >= alert.ends_at)


def _present(
    before: Alert | None, condition: Condition, present: Mapping[str, Condition], now: float
) -> Alert:
    """Return the alert of a condition that lasts."""
    cause = next(
        (
            key
            for key in condition.causes
            if key in present and rank(present[key].kind) < rank(condition.kind)
        ),
        None,
    )
    since = now if before is None else min(now, before.since)  # the clock may have been set back
    fired = None if before is None else before.fired_at
    told = None if before is None or before.told_at is None else min(now, before.told_at)
    if fired is None and cause is None and before is not None and before.explained_by is not None:
        since = now  # the cause has just ended: the effect has its own time to end, too
    wait = condition.wait if cause is None else condition.wait + EXPLAINED_SECONDS
    if fired is None and now - since >= wait:
        fired = now
    return Alert(**condition.model_dump(), since=since, fired_at=fired, told_at=told, explained_by=cause)


def _most_urgent(alerts: dict[str, Alert]) -> dict[str, Alert]:
    """Return at most `MOST_ALERTS` alerts: told ones, then urgent ones, then the oldest."""
    if len(alerts) <= MOST_ALERTS:
        return alerts
    order = sorted(
        alerts.values(),
        key=lambda alert: (
            alert.told_at is None,
            alert.severity is not Severity.CRITICAL,
            alert.since,
            alert.key,
        ),
    )
    return {alert.key: alert for alert in order[:MOST_ALERTS]}


def _with_messages(
    record: AlertRecord, news: Iterable[tuple[News, Alert]], now: float, channels: Channels
) -> AlertRecord:
    """Return the record with a message for each piece of news that its alert still holds."""
    messages, number = list(record.messages), record.number
    for what, alert in news:
        to = _receivers(alert.severity, channels)
        if not to or (what is not News.RECOVERED and alert.key not in record.alerts):
            continue
        number += 1
        messages.append(
            Message(
                number=number,
                key=alert.key,
                news=what,
                severity=alert.severity,
                title=title(what, alert),
                text=text(what, alert),
                at=now,
                to=to,
            )
        )
    named = [
        message.model_copy(update={"to": tuple(name for name in message.to if name in channels)})
        for message in messages
    ]
    waiting = [message for message in named if message.to]
    left = [message for message in waiting if now - message.at < EXPIRE_SECONDS][-MOST_MESSAGES:]
    lost = len(waiting) - len(left)
    health = {name: record.channels.get(name, ChannelHealth()) for name in channels}
    return record.model_copy(
        update={
            "messages": tuple(left),
            "number": number,
            "dropped": record.dropped + lost,
            "channels": health,
        }
    )


def _receivers(severity: Severity, channels: Channels) -> tuple[str, ...]:
    return tuple(
        name
        for name, lowest in channels.items()
        if severity is Severity.CRITICAL or lowest is Severity.WARNING
    )


def with_test(record: AlertRecord, requests: AlertRequests, now: float, channels: Channels) -> AlertRecord:
    """Return the record with the test message that a person requested, once for each request."""
    wanted = requests.test
    if wanted is None or wanted.id == record.tested:
        return record
    to = tuple(name for name in channels if wanted.channel in {None, name})
    message = Message(
        number=record.number + 1,
        key=f"test:{wanted.id}",
        news=News.TEST,
        severity=Severity.WARNING,
        title="[sluice] test of the alerts",
        text=f"This is a test that {wanted.by} requested with `sluice alert test`. Nothing is wrong.",
        at=now,
        to=to,
    )
    return record.model_copy(
        update={
            "tested": wanted.id,
            "results": {},
            "number": message.number if to else record.number,
            "messages": (*record.messages, message) if to else record.messages,
        }
    )


def delivered(record: AlertRecord, number: int, channel: str, error: str | None, now: float) -> AlertRecord:
    """Return the record after one try to send a message; `error` is None if the channel took it.

    A test is tried once, any other message until the channel takes it.
    """
    health = record.channels.get(channel, ChannelHealth())
    tested = any(
        message.number == number and message.key == f"test:{record.tested}" for message in record.messages
    )
    if tested:
        record = record.model_copy(update={"results": {**record.results, channel: error or ""}})
    if error is not None:
        since = now if health.failed_since is None else health.failed_since
        health = health.model_copy(update={"failed_since": since, "error": error})
    else:
        health = ChannelHealth(sent_at=now)
    record = record.model_copy(update={"channels": {**record.channels, channel: health}})
    if error is not None and not tested:
        return record
    messages = tuple(
        message.model_copy(update={"to": tuple(name for name in message.to if name != channel)})
        if message.number == number
        else message
        for message in record.messages
    )
    return record.model_copy(update={"messages": tuple(message for message in messages if message.to)})


_NEWS = {News.FIRED: "", News.REPEATED: "still: ", News.RECOVERED: "recovered: "}


def title(news: News, alert: Alert) -> str:
    """Return a message's title: one line that says what happened."""
    first = alert.happened.splitlines()[0]
    return f"[sluice] {_NEWS[news]}{first}"


def text(news: News, alert: Alert) -> str:
    """Return a message's text: what happened, what the platform did, what to do."""
    if news is News.RECOVERED:
        parts = [f"This is over: {alert.happened}", "What to do: nothing."]
    else:
        parts = [
            f"What happened: {alert.happened}",
            f"What the platform did: {alert.did}",
            f"What to do: {alert.do}",
        ]
    parts += [f"Page: {alert.link}"] if alert.link else []
    parts += [f"Alert: {alert.key}. To silence it: sluice alert silence {alert.key} --for 2h"]
    return "\n\n".join(parts)
