"""Decide an agent's next actions from the assignment and the units found on the host.

Pure: no I/O, no clock, no environment. `sluice_ops.agent.loop` calls `reconcile` once per round;
`process_control` carries the actions out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from sluice_ops.model.assignment import Assignment, Unit, UnitKind, UnitObserved, UnitState
from sluice_ops.model.ids import BATCH, UnitId
from sluice_ops.model.resources import known

GRACE_SECONDS = 10.0
"""The time from the request to stop until all processes of the container are killed."""
STEADY_SECONDS = 60.0
"""A slot that ran this long started well: its next failure counts as the first."""
LONGEST_WAIT_SECONDS = 30.0
"""The longest delay before a slot that died is started again."""
SOON_SECONDS = 0.25
"""The time to the next round while a process is about to end."""


@dataclass(frozen=True)
class FoundUnit:
    """The state of one unit on the host."""

    unit: Unit
    alive: bool
    """Its main process runs, or the shell that writes the exit status of that process."""
    others: int
    """How many other processes are in the container: executors, a JVM, leftovers."""
    started_at: float
    restarts: int = 0
    failures: int = 0
    """How many starts in a row ended within `STEADY_SECONDS`."""
    pid: int | None = None
    stopping_at: float | None = None
    ended_at: float | None = None
    exit: str | None = None


@dataclass(frozen=True)
class ProcessorNeeds:
    """The units that get too little processor time or need little, and since when."""

    starved: Mapping[UnitId, float] = field(default_factory=dict)
    modest: Mapping[UnitId, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """Start a unit in a new container."""

    verb: ClassVar[str] = "start"

    unit: Unit
    restarts: int = 0
    failures: int = 0


@dataclass(frozen=True)
class RequestStop:
    """Request the main process to stop.

    With `decommission`, a batch slot takes no new tasks and finishes its running tasks first.
    """

    verb: ClassVar[str] = "stop request"

    unit: UnitId
    decommission: bool


@dataclass(frozen=True)
class Kill:
    """Kill all processes of the container."""

    verb: ClassVar[str] = "kill"

    unit: UnitId


@dataclass(frozen=True)
class KillForFault:
    """Kill all processes of a unit that hangs or exceeds its quantum, and record the reason."""

    verb: ClassVar[str] = "kill"

    unit: UnitId
    reason: str


@dataclass(frozen=True)
class SetWeights:
    """Set the weights of a running container."""

    verb: ClassVar[str] = "setting weights"

    unit: Unit


@dataclass(frozen=True)
class Remove:
    """Remove the empty container and the unit's files."""

    verb: ClassVar[str] = "removal"

    unit: UnitId


Action = Start | RequestStop | Kill | KillForFault | SetWeights | Remove


@dataclass(frozen=True)
class NextActions:
    """The actions of a round."""

    actions: tuple[Action, ...]
    look_again_at: float | None
    """The latest time of the next round, on the monotonic clock; None if no unit needs one."""


def timestamps(units: Iterable[FoundUnit]) -> Iterator[float]:
    """Yield all start, stop and end times of the units, by the wall clock."""
    for found_unit in units:
        yield from (
            timestamp
            for timestamp in (found_unit.started_at, found_unit.stopping_at, found_unit.ended_at)
            if timestamp is not None
        )


def on_monotonic_clock(found_unit: FoundUnit, first_seen: Callable[[float], float]) -> FoundUnit:
    """Return the unit with its times converted to the monotonic clock, because wall clocks may
    jump.

    `first_seen` tells when the agent first saw a timestamp, on the monotonic clock.
    """
    stopping, ended = (
        None if timestamp is None else first_seen(timestamp)
        for timestamp in (found_unit.stopping_at, found_unit.ended_at)
    )
    return replace(
        found_unit, started_at=first_seen(found_unit.started_at), stopping_at=stopping, ended_at=ended
    )


def reconcile(
    assignment: Assignment, units: Sequence[FoundUnit], now: float, reclaim_seconds: float
) -> NextActions:
    """Decide the actions for all units that are assigned or on the host.

    A batch slot that is no longer assigned has `reclaim_seconds` for its running tasks. All times
    are on one monotonic clock.
    """
    assigned = {unit.id: unit for unit in assignment.units}
    on_host = {found_unit.unit.id: found_unit for found_unit in units}
    actions: list[Action] = []
    next_rounds: list[float] = []
    for identity in sorted(assigned.keys() | on_host.keys()):
        unit, found_unit = assigned.get(identity), on_host.get(identity)
        if found_unit is None:
            if unit is not None:
                actions.append(Start(unit))
        elif unit is None or found_unit.stopping_at is not None or not _same(unit, found_unit.unit):
            _end(found_unit, now, reclaim_seconds, actions, next_rounds)
        else:
            _keep_running(unit, found_unit, now, actions, next_rounds)
    return NextActions(tuple(actions), min(next_rounds, default=None))


def retry_at(found_unit: FoundUnit) -> float:
    """Return when a slot that died is started again: at once after the first failure, then after
    1, 2, 4 … 30 s.
    """
    ended = found_unit.ended_at if found_unit.ended_at is not None else found_unit.started_at
    failures = _failures(found_unit)
    return ended if failures <= 1 else ended + min(LONGEST_WAIT_SECONDS, 2.0 ** (failures - 2))


def observe(
    assignment: Assignment,
    units: Sequence[FoundUnit],
    troubles: Mapping[UnitId, str],
    needs: ProcessorNeeds,
    now: float,
) -> tuple[UnitObserved, ...]:
    """Return the report of all units for the channel.

    `troubles` has the error of each unit whose last action failed.
    """
    on_host = {found_unit.unit.id for found_unit in units}
    observed = [_observed(found_unit, needs) for found_unit in units]
    for unit in assignment.units:
        if unit.id not in on_host and unit.id in troubles:
            state = UnitState.STARTING if unit.kind is UnitKind.SLOT else UnitState.EXITED
            observed.append(UnitObserved(id=unit.id, state=state, exit=troubles[unit.id], since=now))
    return tuple(sorted(observed, key=lambda unit: unit.id))


def _same(assigned: Unit, on_host: Unit) -> bool:
    """Tell whether a unit on the host is as assigned, apart from `quiet`.

    Fields that this version does not know do not count: they need no restart.
    """
    assigned = assigned.model_copy(update={"quiet": on_host.quiet})
    return assigned == on_host or known(assigned) == known(on_host)


def _failures(found_unit: FoundUnit) -> int:
    lasted = found_unit.ended_at is not None and found_unit.ended_at - found_unit.started_at >= STEADY_SECONDS
    return 1 if lasted else found_unit.failures + 1


def _keep_running(
    unit: Unit, found_unit: FoundUnit, now: float, actions: list[Action], next_rounds: list[float]
) -> None:
    if found_unit.alive:
        if unit.quiet != found_unit.unit.quiet:
            actions.append(SetWeights(unit))
    elif found_unit.others:
        actions.append(Kill(unit.id))
        next_rounds.append(now + SOON_SECONDS)
    elif unit.kind is UnitKind.SLOT:
        if now >= retry_at(found_unit):
            actions.append(Start(unit, found_unit.restarts + 1, _failures(found_unit)))
        else:
            next_rounds.append(retry_at(found_unit))


def _end(
    found_unit: FoundUnit, now: float, reclaim_seconds: float, actions: list[Action], next_rounds: list[float]
) -> None:
    identity = found_unit.unit.id
    is_batch_slot = found_unit.unit.kind is UnitKind.SLOT and found_unit.unit.tenant == BATCH
    if not found_unit.alive:
        actions.append(Kill(identity) if found_unit.others else Remove(identity))
        next_rounds.append(now + SOON_SECONDS)
        return
    if found_unit.stopping_at is None:
        actions.append(RequestStop(identity, decommission=is_batch_slot))
        next_rounds.append(now + SOON_SECONDS)
        return
    grace = reclaim_seconds if is_batch_slot else GRACE_SECONDS
    idle = is_batch_slot and not found_unit.others and now >= found_unit.stopping_at + SOON_SECONDS
    if idle or now >= found_unit.stopping_at + grace:
        actions.append(Kill(identity))
        next_rounds.append(now + SOON_SECONDS)
    else:
        next_rounds.append(
            min(found_unit.stopping_at + grace, now + 4 * SOON_SECONDS)
            if is_batch_slot
            else found_unit.stopping_at + grace
        )


def state_of(found_unit: FoundUnit) -> UnitState:
    """Return the unit's state; a slot that died is STARTING, because the agent starts it again."""
    if found_unit.stopping_at is not None:
        return UnitState.STOPPING
    if found_unit.alive:
        return UnitState.RUNNING
    return UnitState.STARTING if found_unit.unit.kind is UnitKind.SLOT else UnitState.EXITED


def _observed(found_unit: FoundUnit, needs: ProcessorNeeds) -> UnitObserved:
    state, since = state_of(found_unit), found_unit.stopping_at
    if since is None:
        since = found_unit.started_at if found_unit.alive else found_unit.ended_at or found_unit.started_at
    return UnitObserved(
        id=found_unit.unit.id,
        state=state,
        pid=found_unit.pid if found_unit.alive else None,
        restarts=found_unit.restarts,
        exit=found_unit.exit,
        since=since,
        starved_since=needs.starved.get(found_unit.unit.id),
        modest_since=needs.modest.get(found_unit.unit.id),
    )
