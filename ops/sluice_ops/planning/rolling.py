"""Which hosts a rolling reboot takes next. Pure.

The caller reads the channel, and carries out what `next_turn` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice_ops.model.alert import Alert, AlertRecord, AlertRequests, kind_of
from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName
from sluice_ops.model.rolling import RollingReboot
from sluice_ops.model.wording import listed
from sluice_ops.planning.alerts.catalogue import stops_reboots
from sluice_ops.planning.placement.cluster import Located, RefusedError, at

CONTINUE_SECONDS = 86_400.0
"""How long after its last batch a rolling reboot that stopped is continued by the next run."""
SOON_SECONDS = 120.0
"""A condition that becomes an alert within this time, such as a lag, is waited for."""
LOOK_SECONDS = 10.0
"""The time between two looks at a condition that may become an alert."""


@dataclass(frozen=True)
class HostNow:
    """A host as a rolling reboot sees it."""

    place: Located
    live: bool
    state: HostState
    boot: str | None
    """An id that changes with each boot; None: its agent reports none."""
    reboot_needed: bool


@dataclass(frozen=True)
class Batch:
    """Reboot these hosts together, as the batch of this number."""

    number: int
    hosts: tuple[HostName, ...]


@dataclass(frozen=True)
class Wait:
    """Look again at `until`, in epoch seconds."""

    until: float
    reason: str


@dataclass(frozen=True)
class Stop:
    """Begin no further batch. The sentence has the reason and the next step."""

    sentence: str


@dataclass(frozen=True)
class Complete:
    """Every host is done, or left out with a reason."""

    sentence: str


Turn = Batch | Wait | Stop | Complete


@dataclass(frozen=True)
class Begun:
    """A rolling reboot that begins or continues, and the hosts that are left out, with reasons."""

    reboot: RollingReboot
    left_out: Mapping[HostName, str]
    continued: bool


def begin(
    wanted: RollingReboot,
    hosts: Mapping[HostName, HostNow],
    earlier: RollingReboot | None,
    *,
    only_needed: bool,
) -> Begun:
    """Return the rolling reboot of the hosts at a place, which continues an earlier one of a day.

    Raise RefusedError if no host is at one of the places.
    """
    chosen = _hosts_at(wanted.place, hosts)
    left_out = {
        name: reason
        for name in chosen
        if (reason := _why_left_out(name, hosts[name], only_needed=only_needed)) is not None
    }
    continued = earlier is not None and _goes_on(earlier, wanted)
    before = earlier if earlier is not None and continued else wanted
    boots = {name: boot for name, boot in before.boots.items() if name in hosts}
    boots |= {
        name: str(hosts[name].boot) for name in chosen if name not in left_out and name not in before.boots
    }
    update: dict[str, object] = {"boots": boots, "at": wanted.at}
    if before.run != wanted.run:
        update |= {"run": wanted.run, "earlier_events": wanted.earlier_events, "not_before": 0.0}
    reboot = before.model_copy(update=update)
    return Begun(reboot, {name: why for name, why in left_out.items() if name not in before.boots}, continued)


def _goes_on(earlier: RollingReboot, wanted: RollingReboot) -> bool:
    """Return whether a run continues an earlier rolling reboot. A retry always does."""
    if earlier.run == wanted.run:
        return True
    return not earlier.complete and wanted.at - earlier.at < CONTINUE_SECONDS


def _hosts_at(place: str, hosts: Mapping[HostName, HostNow]) -> list[HostName]:
    chosen: set[HostName] = set()
    for part in place.split(","):
        here = {name for name, host in hosts.items() if at(part)(host.place)}
        if not here:
            message = (
                f"no host is at {part!r}: write a host's name, zone:NAME, rack:NAME or label:NAME, or "
                f"several with commas; known hosts: {listed(sorted(hosts)) or 'none has registered yet'}"
            )
            raise RefusedError(message)
        chosen |= here
    return sorted(chosen)


def _why_left_out(name: HostName, host: HostNow, *, only_needed: bool) -> str | None:
    if not host.live:
        return "its agent does not answer"
    if host.state is not HostState.UP:
        return f"it is {host.state}; to have it rebooted, first run `sluice return {name}`"
    if host.boot is None:
        return "its agent is of an older version and reports no boot: upgrade Sluice there"
    if only_needed and not host.reboot_needed:
        return "no update needs a reboot"
    return None


def remaining(reboot: RollingReboot, hosts: Mapping[HostName, HostNow]) -> list[HostName]:
    """Return the hosts that have not booted since the beginning, in order.

    A host that was retired meanwhile is done.
    """
    return [
        name
        for name, boot in reboot.boots.items()
        if name in hosts and hosts[name].boot == boot and name not in reboot.rebooted
    ]


def batches(
    reboot: RollingReboot, hosts: Mapping[HostName, HostNow], at_once: int
) -> list[tuple[HostName, ...]]:
    """Return the batches that are left if each goes well."""
    left = [name for name in remaining(reboot, hosts) if _is_ready(hosts[name])]
    return [tuple(left[first : first + at_once]) for first in range(0, len(left), at_once)]


def next_turn(  # noqa: PLR0913, PLR0917 - what a turn depends on
    reboot: RollingReboot,
    hosts: Mapping[HostName, HostNow],
    at_once: int,
    alerts: AlertRecord,
    requests: AlertRequests,
    opens: float | None,
    now: float,
) -> Turn:
    """Return what to do next, while no batch of this rolling reboot is under way.

    `opens` is when the window opens; None: it is open.
    """
    left = batches(reboot, hosts, at_once)
    away = [name for name in reboot.boots if name in hosts and not hosts[name].live]
    if away:
        return Stop(
            f"the agent of {listed(away)} does not answer: bring it back. If the host is gone for good, run "
            f"`sluice decommission {away[0]}`"
        )
    if not left:
        return Complete(_summary(reboot, hosts))
    held = obstacle(alerts, requests, reboot.earlier_events, opens, now)
    if held is not None:
        return held
    if now < reboot.not_before:
        return Wait(reboot.not_before, "the controller begins no batch before")
    return Batch(reboot.number + 1, left[0])


def obstacle(
    alerts: AlertRecord,
    requests: AlertRequests,
    earlier_events: Sequence[str],
    opens: float | None,
    now: float,
) -> Stop | Wait | None:
    """Return why no batch may begin now; None: one may.

    The run looks before it posts a batch, and the controller again before the batch begins: it may
    have waited for approval, or for another change.
    """
    opened = open_alerts(alerts, requests, earlier_events, now)
    if opened:
        first = alerts.alerts[opened[0]]
        key = first.key if len(opened) == 1 else f"'{first.kind}:*'"
        return Stop(
            f"the alert {listed(opened)} is open: {first.happened}. Remove the cause, or run "
            f"`sluice alert silence {key} --for 2h`"
        )
    if opens is not None:
        return Wait(opens, "the window `reboot_window` of the site file is closed")
    pending = _pending(alerts, requests, now)
    return Wait(now + LOOK_SECONDS, f"{listed(pending)} may become an alert") if pending else None


def open_alerts(
    alerts: AlertRecord, requests: AlertRequests, earlier_events: Sequence[str], now: float
) -> list[str]:
    """Return the keys of the alerts that stop a rolling reboot.

    These last, are not silenced, and are no known earlier events. An effect of an alert that stops
    none, such as the lag of a starved tier, does not wait for its cause.
    """
    return [
        key
        for key, alert in alerts.alerts.items()
        if (alert.fired_at is not None or (_cause_stops_none(alert) and now - alert.since >= alert.wait))
        and alert.gone_at is None
        and stops_reboots(alert.kind)
        and not requests.silenced(key, now)
        and not (alert.ends_at is not None and key in earlier_events)
    ]


def _cause_stops_none(alert: Alert) -> bool:
    """Tell whether another alert explains this one, but does not stop a rolling reboot."""
    return alert.explained_by is not None and not stops_reboots(kind_of(alert.explained_by))


def events(alerts: AlertRecord) -> tuple[str, ...]:
    """Return the keys of the alerts of events, such as a failed change."""
    return tuple(key for key, alert in alerts.alerts.items() if alert.ends_at is not None)


def _pending(alerts: AlertRecord, requests: AlertRequests, now: float) -> list[str]:
    """Return the keys of conditions that may become alerts soon."""
    return [
        key
        for key, alert in alerts.alerts.items()
        if alert.fired_at is None
        and alert.gone_at is None
        and alert.wait <= SOON_SECONDS
        and stops_reboots(alert.kind)
        and (alert.explained_by is None or _cause_stops_none(alert))
        and not requests.silenced(key, now)
    ]


def _is_ready(host: HostNow) -> bool:
    return host.live and host.state is HostState.UP


def _summary(reboot: RollingReboot, hosts: Mapping[HostName, HostNow]) -> str:
    left = remaining(reboot, hosts)
    done = [name for name in reboot.boots if name not in left]
    sentence = f"rebooted: {listed(done)}" if done else "no host had to be rebooted"
    not_up = "; ".join(f"{name} is {hosts[name].state}" for name in left)
    return f"{sentence}; left out: {not_up}" if left else sentence


def left_out_sentences(left_out: Mapping[HostName, str]) -> Iterable[str]:
    """Return a sentence for each host that is left out."""
    return (f"{name} is left out: {why}" for name, why in left_out.items())
