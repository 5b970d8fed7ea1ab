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
class Found:
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
class AskToEnd:
    """Ask the main process to end; a batch slot is asked to take no new tasks and to finish those that it has."""

    unit: UnitId
    decommission: bool


@dataclass(frozen=True)
class Kill:
    """Kill everything in the container."""

    unit: UnitId


@dataclass(frozen=True)
class EndFor:
    """Kill everything in the container of a unit that has more than its quantum, or hangs, and have its end say so."""

    unit: UnitId
    why: str


@dataclass(frozen=True)
class Weigh:
    """Set the container's weights anew, in place."""

    unit: Unit


@dataclass(frozen=True)
class Forget:
    """Remove the empty container and the unit's files."""

    unit: UnitId


Action = Start | AskToEnd | Kill | EndFor | Weigh | Forget


@dataclass(frozen=True)
class Decision:
    """What to do, and when to look again at the latest if nothing wakes the agent before."""

    actions: tuple[Action, ...]
    look_again_at: float | None


def stamps(found: Iterable[Found]) -> Iterator[float]:
    """Yield the moments from which time is counted."""
    for item in found:
        yield from (
            stamp for stamp in (item.started_at, item.stopping_at, item.ended_at) if stamp is not None
        )


def steady(item: Found, seen: Callable[[float], float]) -> Found:
    """Return a unit with the monotonic times at which its stamps were `seen`: wall clocks may jump."""
    stopping, ended = (None if stamp is None else seen(stamp) for stamp in (item.stopping_at, item.ended_at))
    return replace(item, started_at=seen(item.started_at), stopping_at=stopping, ended_at=ended)


def reconcile(assignment: Assignment, found: Sequence[Found], now: float, reclaim_seconds: float) -> Decision:
    """Decide for each unit that is wanted or there; the tasks of a batch slot that is wanted back may go on for so long.

    All moments are on one monotonic clock.
    """
    wanted = {unit.id: unit for unit in assignment.units}
    there = {item.unit.id: item for item in found}
    actions: list[Action] = []
    looks: list[float] = []
    for identity in sorted(wanted.keys() | there.keys()):
        unit, item = wanted.get(identity), there.get(identity)
        if item is None:
            if unit is not None:
                actions.append(Start(unit))
        elif unit is None or item.stopping_at is not None or not _same(unit, item.unit):
            _end(item, now, reclaim_seconds, actions, looks)
        else:
            _keep(unit, item, now, actions, looks)
    return Decision(tuple(actions), min(looks, default=None))


def retry_at(item: Found) -> float:
    """When a slot that died is started again: at once the first time, later each time that it does not last."""
    ended = item.ended_at if item.ended_at is not None else item.started_at
    failures = _failures(item)
    return ended if failures <= 1 else ended + min(LONGEST_WAIT_SECONDS, 2.0 ** (failures - 2))


def observe(
    assignment: Assignment,
    found: Sequence[Found],
    troubles: Mapping[UnitId, str],
    starved: Mapping[UnitId, float],
    now: float,
) -> tuple[UnitObserved, ...]:
    """Say what is there, for the controller and for people.

    `troubles` are units that could not be started, and why; `starved` are those that get too little processor time, and since when.
    """
    there = {item.unit.id for item in found}
    observed = [_observed(item, starved.get(item.unit.id)) for item in found]
    for unit in assignment.units:
        if unit.id not in there and unit.id in troubles:
            state = UnitState.STARTING if unit.kind is UnitKind.SLOT else UnitState.EXITED
            observed.append(UnitObserved(id=unit.id, state=state, exit=troubles[unit.id], since=now))
    return tuple(sorted(observed, key=lambda each: each.id))


def _same(wanted: Unit, there: Unit) -> bool:
    """Tell whether a unit is as it is wanted: a controller that says more than this version knows is no reason to start it anew."""
    like = wanted.model_copy(update={"quiet": there.quiet})
    return like == there or known(like) == known(there)


def _failures(item: Found) -> int:
    lasted = item.ended_at is not None and item.ended_at - item.started_at >= STEADY_SECONDS
    return 1 if lasted else item.failures + 1


def _keep(unit: Unit, item: Found, now: float, actions: list[Action], looks: list[float]) -> None:
    if item.alive:
        if unit.quiet != item.unit.quiet:
            actions.append(Weigh(unit))
    elif item.others:
        actions.append(Kill(unit.id))
        looks.append(now + SOON_SECONDS)
    elif unit.kind is UnitKind.SLOT:
        if now >= retry_at(item):
            actions.append(Start(unit, item.restarts + 1, _failures(item)))
        else:
            looks.append(retry_at(item))


def _end(item: Found, now: float, reclaim_seconds: float, actions: list[Action], looks: list[float]) -> None:
    identity = item.unit.id
    lends = item.unit.kind is UnitKind.SLOT and item.unit.tenant == BATCH
    if not item.alive:
        actions.append(Kill(identity) if item.others else Forget(identity))
        looks.append(now + SOON_SECONDS)
        return
    if item.stopping_at is None:
        actions.append(AskToEnd(identity, decommission=lends))
        looks.append(now + SOON_SECONDS)
        return
    grace = reclaim_seconds if lends else GRACE_SECONDS
    idle = lends and not item.others and now >= item.stopping_at + SOON_SECONDS
    if idle or now >= item.stopping_at + grace:
        actions.append(Kill(identity))
        looks.append(now + SOON_SECONDS)
    else:
        looks.append(
            min(item.stopping_at + grace, now + 4 * SOON_SECONDS) if lends else item.stopping_at + grace
        )


def state_of(item: Found) -> UnitState:
    """Say how a unit is; a slot that has died is about to start again."""
    if item.stopping_at is not None:
        return UnitState.STOPPING
    if item.alive:
        return UnitState.RUNNING
    return UnitState.STARTING if item.unit.kind is UnitKind.SLOT else UnitState.EXITED


def _observed(item: Found, starved_since: float | None) -> UnitObserved:
    state, since = state_of(item), item.stopping_at
    if since is None:
        since = item.started_at if item.alive else item.ended_at or item.started_at
    return UnitObserved(
        id=item.unit.id,
        state=state,
        pid=item.pid if item.alive else None,
        restarts=item.restarts,
        exit=item.exit,
        since=since,
        starved_since=starved_since,
    )
