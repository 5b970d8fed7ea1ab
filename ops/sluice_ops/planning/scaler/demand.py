"""The load of each tier, from what its upstream tiers will write once they have their slots.

A throttled tier shows less than its load. So the load is not what arrives now: it is the rate from
outside, through the measured ratios of all tiers on the way.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Readings
from sluice_ops.planning.scaler.signals import Signals

TOLERATED_SECONDS = 5.0
"""Records that wait for less are no backlog: a micro-batch takes them next. Unit: seconds."""
BUSY = 0.5
"""Workers that are less busy than this wait for something else than more workers."""
MOST = 1e15
"""The largest rate of a plan, so that no ratio of wrong figures makes it infinite."""
ROUNDING = 0.001
"""A need of 2.001 workers is 2 workers: the figures are no better than that."""


@dataclass(frozen=True)
class Flow:
    """Records a second."""

    rate: float = 0.0
    """The lasting rate."""
    surplus: float = 0.0
    """The rate in addition, while backlogs are processed."""

    def __add__(self, other: "Flow") -> "Flow":
        """Return both flows together."""
        return Flow(self.rate + other.rate, self.surplus + other.surplus)

    @property
    def total(self) -> float:
        return self.rate + self.surplus

    def scaled(self, factor: float) -> "Flow":
        return Flow(min(self.rate * factor, MOST), min(self.surplus * factor, MOST))


def upstream_first(
    tiers: Iterable[TierName], inputs: Mapping[TierName, tuple[TierName, ...]]
) -> list[TierName]:
    """Return the tiers so that each comes after its upstream tiers; a loop is cut at one place."""
    order: dict[TierName, None] = {}
    entered: set[TierName] = set()

    def enter(tier: TierName) -> None:
        if tier not in entered:
            entered.add(tier)
            for writer in sorted(inputs.get(tier, ())):
                enter(writer)
            order[tier] = None

    wanted = {*tiers}
    for tier in sorted(wanted):
        enter(tier)
    return [tier for tier in order if tier in wanted]


def arriving_load(
    tier: Readings, writers: Mapping[TierName, Readings], planned: Mapping[TierName, Flow]
) -> Flow:
    """Return the load of a tier from its writers: what arrives now, times their planned growth.

    A writer without a plan, which is later in a loop, stays as it is.
    """
    written = sum(writer.rate_out for writer in writers.values())
    if not written:
        return Flow(tier.rate_in)
    planned_output = sum(
        (planned.get(name, Flow(writer.rate_out)) for name, writer in writers.items()), Flow()
    )
    return planned_output.scaled(tier.rate_in / written)


def with_backlog(
    load: Flow, signals: Signals, per_worker: float | None, change_seconds: float, catch_up: float
) -> Flow:
    """Return a load with what is needed to process the tier's backlog within `catch_up` seconds.

    It is the backlog at the end of a change that begins now. A tier that may lag gets workers for
    what arrives, and processes its backlog with what they have left.
    """
    if not signals.holds:
        return load
    capacity = math.inf if per_worker is None else signals.workers * per_worker
    growing = max(0.0, load.rate - capacity) * change_seconds
    waiting = _backlog(load, signals) if signals.busy >= BUSY else 0.0
    return load + Flow(surplus=(waiting + growing) / catch_up)


def with_throttled_backlog(load: Flow, signals: Signals, catch_up: float) -> Flow:
    """Return the load of a tier with the backlog that waits for slower tiers downstream.

    These tiers need workers for it; the throttled tier does not, for its own workers wait.
    """
    if not signals.throttled or signals.busy >= BUSY:
        return load
    return load + Flow(surplus=_backlog(load, signals) / catch_up)


def _backlog(load: Flow, signals: Signals) -> float:
    """Return the waiting records, without those that the next micro-batch takes."""
    return max(0.0, signals.lag - load.rate * TOLERATED_SECONDS)


def planned_output(load: Flow, tier: Readings, most_workers: int) -> Flow:
    """Return what a tier will write with at most so many workers."""
    if not tier.rate_done:
        return Flow(tier.rate_out)
    capacity = math.inf if tier.per_worker is None else most_workers * tier.per_worker
    rate = min(load.rate, capacity)
    return Flow(rate, min(load.surplus, capacity - rate)).scaled(tier.rate_out / tier.rate_done)


def workers_for(load: Flow, per_worker: float, utilisation: float) -> int:
    """Return the workers for a load: the lasting rate with reserve, the surplus without."""
    rate = max(load.rate / utilisation, load.total)
    return max(0, math.ceil(rate / per_worker - ROUNDING))
