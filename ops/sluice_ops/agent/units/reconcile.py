"""What an agent does next: the pure step from what is assigned and what was found to actions. No I/O, no clocks, no environment.

`sluice_ops.agent.loop` calls it once per round with one snapshot; `process_control` carries the actions out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sluice_ops.model.assignment import Assignment, Unit, UnitKind, UnitObserved, UnitState
from sluice_ops.model.ids import BATCH, UnitId
from sluice_ops.model.resources import known

GRACE_SECONDS = 10.0
"""From the request to end until everything in the container is killed."""
STEADY_SECONDS = 60.0
"""A slot that ran this long has started well: its next failure is its first."""
LONGEST_WAIT_SECONDS = 30.0
SOON_SECONDS = 0.25
"""When something is about to end, look again after this."""


@dataclass(frozen=True)
class FoundUnit:
    """One unit as it was found on the host."""

    unit: Unit
    alive: bool
    """Its main process, or whoever writes down how that one ended, is there."""
    others: int
    """Processes in the container beside the main one: executors, a JVM, left-overs."""
    started_at: float
    restarts: int = 0
    failures: int = 0
    """Starts in a row that did not last."""
    pid: int | None = None
    stopping_at: float | None = None
    ended_at: float | None = None
    exit: str | None = None


@dataclass(frozen=True)
class Start:
    """Start a unit in a fresh container."""

    unit: Unit
    restarts: int = 0
    failures: int = 0


@dataclass(frozen=True)
class RequestStop:
    """Ask the main process to end; a batch slot is asked to take no new tasks and to finish those that it has."""

    unit: UnitId
    decommission: bool


@dataclass(frozen=True)
class Kill:
    """Kill everything in the container."""

    unit: UnitId


@dataclass(frozen=True)
class KillForFault:
    """Kill everything in the container of a unit that has more than its quantum, or hangs, and have its end say so."""

    unit: UnitId
    why: str


@dataclass(frozen=True)
class SetWeights:
    """Set the container's weights anew, in place."""

    unit: Unit


@dataclass(frozen=True)
class Remove:
    """Remove the empty container and the unit's files."""

    unit: UnitId


Action = Start | RequestStop | Kill | KillForFault | SetWeights | Remove


@dataclass(frozen=True)
class Decision:
    """What to do, and when to look again at the latest if nothing wakes the agent before."""

    actions: tuple[Action, ...]
    look_again_at: float | None


def timestamps(found: Iterable[FoundUnit]) -> Iterator[float]:
    """Yield the moments from which time is counted."""
    for found_unit in found:
        yield from (
            stamp
            for stamp in (found_unit.started_at, found_unit.stopping_at, found_unit.ended_at)
            if stamp is not None
        )


def on_monotonic_clock(found_unit: FoundUnit, seen: Callable[[float], float]) -> FoundUnit:
    """Return a unit with the monotonic times at which its timestamps were `seen`: wall clocks may jump."""
    stopping, ended = (
        None if stamp is None else seen(stamp) for stamp in (found_unit.stopping_at, found_unit.ended_at)
    )
    return replace(found_unit, started_at=seen(found_unit.started_at), stopping_at=stopping, ended_at=ended)


def reconcile(
    assignment: Assignment, found: Sequence[FoundUnit], now: float, reclaim_seconds: float
) -> Decision:
    """Decide for each unit that is wanted or there; the tasks of a batch slot that is wanted back may go on for so long.

    All moments are on one monotonic clock.
    """
    wanted = {unit.id: unit for unit in assignment.units}
    there = {found_unit.unit.id: found_unit for found_unit in found}
    actions: list[Action] = []
    looks: list[float] = []
    for identity in sorted(wanted.keys() | there.keys()):
        unit, found_unit = wanted.get(identity), there.get(identity)
        if found_unit is None:
            if unit is not None:
                actions.append(Start(unit))
        elif unit is None or found_unit.stopping_at is not None or not _same(unit, found_unit.unit):
            _end(found_unit, now, reclaim_seconds, actions, looks)
        else:
            _keep(unit, found_unit, now, actions, looks)
    return Decision(tuple(actions), min(looks, default=None))


def retry_at(found_unit: FoundUnit) -> float:
    """When a slot that died is started again: at once the first time, later each time that it does not last."""
    ended = found_unit.ended_at if found_unit.ended_at is not None else found_unit.started_at
    failures = _failures(found_unit)
    return ended if failures <= 1 else ended + min(LONGEST_WAIT_SECONDS, 2.0 ** (failures - 2))


def observe(
    assignment: Assignment,
    found: Sequence[FoundUnit],
    troubles: Mapping[UnitId, str],
    starved: Mapping[UnitId, float],
    now: float,
) -> tuple[UnitObserved, ...]:
    """Say what is there, for the controller and for people.

    `troubles` are units that could not be started, and why; `starved` are those that get too little processor time, and since when.
    """
    there = {found_unit.unit.id for found_unit in found}
    observed = [_observed(found_unit, starved.get(found_unit.unit.id)) for found_unit in found]
    for unit in assignment.units:
        if unit.id not in there and unit.id in troubles:
            state = UnitState.STARTING if unit.kind is UnitKind.SLOT else UnitState.EXITED
            observed.append(UnitObserved(id=unit.id, state=state, exit=troubles[unit.id], since=now))
    return tuple(sorted(observed, key=lambda each: each.id))


def _same(wanted: Unit, there: Unit) -> bool:
    """Tell whether a unit is as it is wanted: a controller that says more than this version knows is no reason to start it anew."""
    like = wanted.model_copy(update={"quiet": there.quiet})
    return like == there or known(like) == known(there)


def _failures(found_unit: FoundUnit) -> int:
    lasted = found_unit.ended_at is not None and found_unit.ended_at - found_unit.started_at >= STEADY_SECONDS
    return 1 if lasted else found_unit.failures + 1


def _keep(unit: Unit, found_unit: FoundUnit, now: float, actions: list[Action], looks: list[float]) -> None:
    if found_unit.alive:
        if unit.quiet != found_unit.unit.quiet:
            actions.append(SetWeights(unit))
    elif found_unit.others:
        actions.append(Kill(unit.id))
        looks.append(now + SOON_SECONDS)
    elif unit.kind is UnitKind.SLOT:
        if now >= retry_at(found_unit):
            actions.append(Start(unit, found_unit.restarts + 1, _failures(found_unit)))
        else:
            looks.append(retry_at(found_unit))


def _end(
    found_unit: FoundUnit, now: float, reclaim_seconds: float, actions: list[Action], looks: list[float]
) -> None:
    identity = found_unit.unit.id
    lends = found_unit.unit.kind is UnitKind.SLOT and found_unit.unit.tenant == BATCH
    if not found_unit.alive:
        actions.append(Kill(identity) if found_unit.others else Remove(identity))
        looks.append(now + SOON_SECONDS)
        return
    if found_unit.stopping_at is None:
        actions.append(RequestStop(identity, decommission=lends))
        looks.append(now + SOON_SECONDS)
        return
    grace = reclaim_seconds if lends else GRACE_SECONDS
    idle = lends and not found_unit.others and now >= found_unit.stopping_at + SOON_SECONDS
    if idle or now >= found_unit.stopping_at + grace:
        actions.append(Kill(identity))
        looks.append(now + SOON_SECONDS)
    else:
        looks.append(
            min(found_unit.stopping_at + grace, now + 4 * SOON_SECONDS)
            if lends
            else found_unit.stopping_at + grace
        )


def state_of(found_unit: FoundUnit) -> UnitState:
    """Say how a unit is; a slot that has died is about to start again."""
    if found_unit.stopping_at is not None:
        return UnitState.STOPPING
    if found_unit.alive:
        return UnitState.RUNNING
    return UnitState.STARTING if found_unit.unit.kind is UnitKind.SLOT else UnitState.EXITED


def _observed(found_unit: FoundUnit, starved_since: float | None) -> UnitObserved:
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
        starved_since=starved_since,
    )
