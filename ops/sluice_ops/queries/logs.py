"""Find the process that a person names, and read the end of its log from whichever host has it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState, driver_id, slot_number
from sluice_ops.model.ids import HostName, Incarnation, Tenant, TierName, UnitId
from sluice_ops.model.logs import MOST_LINES, LogPart, LogRequest
from sluice_ops.model.wording import listed
from sluice_ops.operations.alerts import read_alerts
from sluice_ops.operations.log_requests import NoAnswerError, ask, new_request
from sluice_ops.process.log_files import EXECUTOR
from sluice_ops.queries.formats import ago, moment
from sluice_ops.snapshot.view import HostView, View

CONTROLLER = "controller"
"""The name of the leading controller's log."""
_UNIT = re.compile(r"driver-(?P<driver>.+)-(?P<number>\d+)|slot-(?P<slot>.+)-(?P<of>\d+)-\d+")


class UnknownLogError(Exception):
    """No process has this name; the message says which names there are."""


class LogAwayError(Exception):
    """The log cannot be read now; the message says why, and `lines` has what is known of it."""

    def __init__(self, message: str, lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.lines = lines


@dataclass(frozen=True)
class Place:
    """A log and the process that reads it."""

    host: HostName | None = None
    """None: the log is a controller's."""
    controller: str | None = None
    log: str | None = None
    """The unit, or the executor; None: the host's agent, or the controller."""

    @property
    def name(self) -> str:
        """The name by which a person finds the log again."""
        if self.host is None:
            return CONTROLLER
        return f"{self.host}/{self.log}" if self.log is not None else self.host

    @property
    def tenant(self) -> Tenant | None:
        """The tenant of the unit; None for the log of an agent or of a controller."""
        named = _UNIT.fullmatch((self.log or "").removesuffix(EXECUTOR))
        return Tenant(named["driver"] or named["slot"]) if named else None


def log_names(view: View) -> list[str]:
    """Return the names of all logs: the controller's, the agents', and those of units that run."""
    units = [f"{host.name}/{unit}" for host in view.hosts.values() for unit in sorted(_units(host))]
    return [CONTROLLER, *sorted(view.hosts), *sorted(units)]


def find_log(view: View, name: str, host: str | None = None) -> Place:
    """Return the place of a log.

    `name` is `controller`, a tier (its driver), a host (its agent), a unit, HOST/UNIT, or a slot
    with the end `/executor`. `host` chooses among hosts. UnknownLogError if there is no such log.
    """
    first, _, rest = name.partition("/")
    if host is None and rest and HostName(first) in view.hosts:
        host, name = first, rest
    if host is not None and HostName(host) not in view.hosts:
        message = f"there is no host {host!r}; hosts: {listed(view.hosts) or 'none'}"
        raise UnknownLogError(message)
    if host is None and name == CONTROLLER:
        return _controller(view)
    if TierName(name) in view.tiers:
        name = _driver(view, TierName(name))
    if host is None and HostName(name) in view.hosts:
        return Place(HostName(name))
    unit = UnitId(name.removesuffix(EXECUTOR))
    hosts = [HostName(host)] if host is not None else _hosts_of(view, unit)
    if len(hosts) == 1:
        return Place(hosts[0], log=name)
    if hosts:
        message = f"{unit} is on {listed(hosts)}; choose one: sluice logs {name} --host {hosts[0]}"
        raise UnknownLogError(message)
    message = (
        f"there is no tier, host or unit {name!r}; tiers: {listed(view.tiers) or 'none'}; "
        f"hosts: {listed(view.hosts) or 'none'}; `sluice logs` lists the units"
    )
    raise UnknownLogError(message)


def read_log(channel: Channel, view: View, place: Place, lines: int) -> LogPart:
    """Return the last lines of a log.

    LogAwayError if its host is lost, its process does not answer, or the log is not there.
    """
    return _read(channel, view, place, LogRequest(to="", key="", lines=min(lines, MOST_LINES)))


def read_log_after(channel: Channel, view: View, place: Place, position: int) -> LogPart:
    """Return what was written to a log after the position of an earlier part; errors as above."""
    return _read(channel, view, place, LogRequest(to="", key="", after=position))


def _read(channel: Channel, view: View, place: Place, wanted: LogRequest) -> LogPart:
    if place.host is not None:
        _refuse_lost(channel, view.hosts[place.host], place)
    to = place.controller or place.host or ""
    request = wanted.model_copy(update={"to": to, "log": place.log})
    identity = new_request()
    path = (
        paths.controller_log_request(identity)
        if place.host is None
        else paths.host_log_request(place.host, identity)
    )
    try:
        part = ask(channel, path, request)
    except NoAnswerError as error:
        machine = f"the machine of controller {to}" if place.host is None else to
        message = f"No log of {place.name}: {error}. On {machine}: {_by_hand(place)}"
        raise LogAwayError(message) from error
    if part.missing is not None:
        message = f"Host {place.host} has no log of {place.log}: {part.missing}"
        raise LogAwayError(message)
    return part


def _refuse_lost(channel: Channel, host: HostView, place: Place) -> None:
    if channel.exists(paths.live(host.name)):
        return
    alert = read_alerts(channel).alerts.get(f"host-lost:{host.name}")
    since = "" if alert is None else f" since {moment(alert.since)} ({ago(alert.since)})"
    state = "reboots" if host.record.state is HostState.REBOOTING else f"is lost{since}"
    last_lines = tuple(
        f"{unit.id}: {unit.exit}"
        for unit in (host.observed.units if host.observed else ())
        if unit.exit is not None and (place.log is None or place.log.removesuffix(EXECUTOR) == unit.id)
    )
    text = "its last known lines follow" if last_lines else "no line of it is known"
    message = (
        f"No log of {place.name}: host {host.name} {state}, and only its agent can read the log; {text}. "
        f"When the host is back: sluice logs {place.name}"
    )
    raise LogAwayError(message, last_lines)


def _by_hand(place: Place) -> str:
    if place.host is None:
        return "`journalctl -u 'sluice-controller@*'`"
    if place.log is None:
        return f"`journalctl -u sluice-agent@{place.host}`"
    return f"`sluice logs {place.name}`"


def _controller(view: View) -> Place:
    if view.status is None:
        message = "no controller has reported yet, so none can be asked for its log"
        raise UnknownLogError(message)
    return Place(controller=view.status.leader)


def _driver(view: View, tier: TierName) -> UnitId:
    """Return the driver of a tier's owner, or else of its newest incarnation."""
    seen = view.tiers[tier]
    number = seen.owner.owner or max(seen.incarnations, default=None)
    if number is None:
        message = f"tier {tier} has not run yet: sluice start {tier}"
        raise UnknownLogError(message)
    return driver_id(tier, number)


def _hosts_of(view: View, unit: UnitId) -> list[HostName]:
    """Return the hosts of a unit; of an ended one, those of its incarnation."""
    hosts = [host.name for host in view.hosts.values() if unit in _units(host)]
    named = _UNIT.fullmatch(unit)
    if hosts or named is None:
        return hosts
    tier = view.tiers.get(TierName(named["driver"] or named["slot"]))
    spec = tier and tier.incarnations.get(Incarnation(int(named["number"] or named["of"])))
    if not spec:
        return []
    if named["driver"]:
        return [spec.placement.driver]
    return list(spec.placement.slots[slot_number(unit) : slot_number(unit) + 1])


def _units(host: HostView) -> Iterable[UnitId]:
    observed = {unit.id for unit in host.observed.units} if host.observed else set()
    return {unit.id for unit in host.assignment.units} | observed
