"""The faults of a game day: what each does, what is promised, and the judge. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sluice_ops.model.assignment import UnitObserved, UnitState
from sluice_ops.model.game_day import GameDayReceipt, Promise
from sluice_ops.model.ids import Incarnation, UnitId
from sluice_ops.model.tier import Standby, TierSpec
from sluice_ops.model.wording import listed

MEASURE_SECONDS = 150.0
"""After the limit, the judge waits so long for a late outcome, to say how late it was."""
NO_LOSS = "no record is lost"


class Victim(StrEnum):
    """The process that a fault hits."""

    DRIVER = "driver"
    WORKER = "worker"
    """The tier's first worker."""
    AGENT = "agent"
    """The agent of the host on which the tier's driver runs."""


@dataclass(frozen=True)
class Fault:
    """A fault, and its promise."""

    name: str
    victim: Victim
    does: str
    """What is done, with the place `{tier}`."""
    promise: str
    limit_seconds: float
    row: str
    """The first cell of the row in the page "Faults" of the documentation with the promise."""
    freezes: bool = False
    limit_warm: float | None = None
    """The limit for a tier with a warm standby; None: the same."""

    def limit(self, tier: TierSpec) -> float:
        """Return within how many seconds the promise has to come true for this tier."""
        if tier.standby is Standby.WARM and self.limit_warm is not None:
            return self.limit_warm
        return self.limit_seconds


_RUNS_AGAIN = "records come out again"
FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault(
            "kill-driver",
            Victim.DRIVER,
            "the driver of {tier} is killed (signal 9)",
            _RUNS_AGAIN,
            20.0,
            "a driver is killed",
            limit_warm=2.0,
        ),
        Fault(
            "freeze-driver",
            Victim.DRIVER,
            "the driver of {tier} is stopped (SIGSTOP)",
            _RUNS_AGAIN,
            20.0,
            "a driver's Python or JVM stands still, or its loop hangs",
            freezes=True,
        ),
        Fault(
            "kill-worker",
            Victim.WORKER,
            "the first worker of {tier} is killed (signal 9)",
            "the driver goes on, and the worker is started again",
            30.0,
            "a slot is killed",
        ),
        Fault(
            "kill-agent",
            Victim.AGENT,
            "the agent of the host of {tier}'s driver is killed (signal 9)",
            "the units continue, and the next agent adopts them",
            12.0,
            "an agent is killed",
        ),
    )
}
"""Every fault by its name."""


@dataclass(frozen=True)
class Seen:
    """What the channel shows after the fault."""

    owner: Incarnation | None
    """The incarnation that owns the tier and runs; None: none runs."""
    silent_seconds: float | None
    """How long nothing came out before a driver's first output; None: nothing came out yet."""
    units: Mapping[UnitId, UnitObserved]
    """The units of the host, as its agent reports them."""
    injected_at: float | None
    """When the agent sent the signal, by its own clock; None: no agent answers."""
    agent_started: float | None
    """When the agent of the host started, by its own clock; None: no agent answers."""
    age: float
    """How long ago the fault was, as far as the controller knows. Unit: seconds."""
    loses: bool = False
    """Whether an alert says that records are lost."""


@dataclass(frozen=True)
class Waits:
    """The judge cannot tell yet."""

    sentence: str


@dataclass(frozen=True)
class Unmeasured:
    """The judge cannot tell, and will not be able to."""

    sentence: str


Verdict = tuple[Promise, ...]


def judge(fault: Fault, limit: float, before: GameDayReceipt, seen: Seen) -> Waits | Unmeasured | Verdict:
    """Return how each promise came out, or why that is not known."""
    match fault.victim:
        case Victim.DRIVER:
            outcome = _driver(fault, limit, before, seen)
        case Victim.WORKER:
            outcome = _worker(fault, limit, before, seen)
        case Victim.AGENT:
            outcome = _agent(fault, limit, before, seen)
    if not isinstance(outcome, Promise):
        return outcome
    lost = "the audit reports lost records: `sluice audit` names them" if seen.loses else ""
    return outcome, Promise(what=NO_LOSS, kept=not seen.loses, but=lost)


def _driver(fault: Fault, limit: float, before: GameDayReceipt, seen: Seen) -> Waits | Unmeasured | Promise:
    is_over = seen.age > limit + MEASURE_SECONDS
    if seen.owner is None or seen.owner == before.incarnation:
        if not is_over:
            return Waits(f"waiting until another incarnation than {before.incarnation} runs")
        if seen.owner is not None:
            return Unmeasured(f"incarnation {seen.owner} still runs, so the fault had no effect")
        but = f"after {seen.age:.0f} s, no incarnation after {before.incarnation} runs"
        return _broken(fault, limit, but)
    if seen.silent_seconds is not None:
        return _timed(fault, limit, seen.silent_seconds)
    if not is_over:
        return Waits(f"incarnation {seen.owner} runs; waiting for its first output")
    return Unmeasured(
        f"incarnation {seen.owner} runs, but nothing came out: did records come in? Let records flow, "
        "and run the game day again"
    )


def _worker(fault: Fault, limit: float, before: GameDayReceipt, seen: Seen) -> Waits | Unmeasured | Promise:
    if seen.owner is not None and seen.owner != before.incarnation:
        return _broken(fault, limit, f"incarnation {seen.owner} replaced the driver")
    ((worker, was),) = before.units.items()
    unit = seen.units.get(worker)
    is_back = unit is not None and unit.state is UnitState.RUNNING and unit.restarts > was.restarts
    if unit is not None and is_back and seen.injected_at is not None:
        return _timed(fault, limit, unit.since - seen.injected_at)
    if seen.age <= limit + MEASURE_SECONDS:
        return Waits(f"waiting until {worker} is started again")
    return _broken(fault, limit, f"after {seen.age:.0f} s, {worker} was not started again")


def _agent(fault: Fault, limit: float, before: GameDayReceipt, seen: Seen) -> Waits | Unmeasured | Promise:
    at, started = seen.injected_at, seen.agent_started
    if at is None or started is None or started <= at:
        if seen.age <= limit + MEASURE_SECONDS:
            return Waits(f"waiting until another agent of {before.host} answers")
        return _broken(fault, limit, f"after {seen.age:.0f} s, no other agent answers on {before.host}")
    restarted = sorted(
        name
        for name, was in before.units.items()
        if (unit := seen.units.get(name)) is None or unit.pid != was.pid or unit.restarts != was.restarts
    )
    if restarted:
        return _broken(fault, limit, f"units did not continue: {listed(restarted)}")
    return _timed(fault, limit, started - at)


def _timed(fault: Fault, limit: float, seconds: float) -> Promise:
    return Promise(what=fault.promise, kept=seconds <= limit, limit_seconds=limit, seconds=seconds)


def _broken(fault: Fault, limit: float, but: str) -> Promise:
    return Promise(what=fault.promise, kept=False, limit_seconds=limit, but=but)
