"""One tier at the moment of a decision, with the numbers that the rules compare."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sluice_ops.model.scaler import Mode, TierMemory, TierScaling, Trend
from sluice_ops.model.wording import workers
from sluice_ops.planning.scaler.attempts import seconds_until_retry
from sluice_ops.planning.scaler.demand import Flow, with_throttled_backlog, workers_for
from sluice_ops.planning.scaler.readings import SMOOTHING_SECONDS, elapsed
from sluice_ops.planning.scaler.signals import Bounds, Signals

SETTLING_SECONDS = 3 * SMOOTHING_SECONDS
"""The smoothed figures follow a step of the load to 95 % in this time. Unit: seconds."""


@dataclass(frozen=True)
class Limit:
    """The most workers that a tier can have now, and why."""

    workers: int
    reason: str


@dataclass(frozen=True)
class Situation:
    """One tier at the moment of a decision."""

    now: float
    scaling: TierScaling
    bounds: Bounds
    signals: Signals | None
    """None: no fresh figures."""
    changing: bool
    memory: TierMemory
    """With the readings of this moment."""
    load: Flow
    grow_seconds: float
    """The time from a request to the first record on one more worker at home."""
    burst_seconds: float
    """The same on a worker of a burst."""

    @property
    def decides(self) -> bool:
        """Whether the number is the scaler's to choose."""
        return self.scaling.mode is not Mode.OFF and self.bounds.held_by is None

    @property
    def advises(self) -> bool:
        """Whether the number is advice, which nobody has to follow."""
        return self.scaling.mode is Mode.ADVISE and self.bounds.held_by is None

    @property
    def highest(self) -> int:
        return min(self.bounds.maximum, self.bounds.partitions)

    @property
    def lowest(self) -> int:
        return min(max(1, self.bounds.minimum), self.highest)

    @property
    def outflow(self) -> Flow:
        """What the tier will process once no tier downstream throttles it any more."""
        if self.signals is None:
            return self.load
        return with_throttled_backlog(self.load, self.signals, self.scaling.catch_up)

    @cached_property
    def wanted(self) -> int:
        """The number before this decision."""
        begins_to_advise = self.advises and not self.memory.told and self.memory.wanted is not None
        if self.scaling.mode is Mode.OFF or begins_to_advise:
            wanted = self.bounds.base
        elif self.memory.wanted is None or self.bounds.held_by is not None:
            wanted = self._at_home
        else:
            wanted = self.memory.wanted
        return max(self.lowest, min(self.highest, wanted))

    @cached_property
    def away(self) -> int:
        """The slots of bursts before this decision.

        While a change is under way, the room of bursts is not known: it may be that change's.
        """
        most = self.memory.away if self.changing else self.most_away
        return min(self.memory.away, most, self.highest - self.wanted)

    @property
    def total(self) -> int:
        """All slots before this decision, also those of a burst that somebody else began."""
        return self.wanted + max(self.away, self.bounds.away)

    @property
    def most_away(self) -> int:
        return max(self.bounds.burst, self.bounds.away)

    @property
    def home(self) -> int:
        """The most slots that find room at home."""
        at_home = self._at_home if self.bounds.placed is None else self.bounds.placed
        return max(self.wanted, at_home + self.bounds.room)

    @cached_property
    def needed(self) -> int | None:
        """The workers that the load needs, whether or not it can have them; None: not known."""
        if self.signals is None or not self._per_worker:
            return None
        return workers_for(self.load, self._per_worker, self.scaling.utilisation)

    @property
    def utilisation(self) -> float:
        """The part of the capacity of all wanted workers that the load takes."""
        return self.load.rate / self._capacity if self._capacity else math.inf

    @property
    def overloaded(self) -> bool:
        """Whether the load and the backlog are above the capacity of all wanted workers."""
        return self.load.total > self._capacity

    @cached_property
    def limit(self) -> Limit:
        """The lowest limit of the tier's workers now."""
        room = self.home + self.most_away
        whose = "the pipeline's maximum leaves" if self.bounds.room_is_share else "home has room for"
        limits = [
            Limit(self.bounds.maximum, f"its maximum is {self.bounds.maximum}"),
            Limit(self.bounds.partitions, f"it has {self.bounds.partitions} partitions"),
            Limit(room, f"{whose} {self.bounds.room} more"),
        ]
        return min([*limits, *self._limits_of_useless_growth()], key=lambda limit: limit.workers)

    def clears_before_burst(self, workers_at_work: int) -> bool:
        """Return whether so many workers clear the backlog before a burst is ready, and carry the
        load.
        """
        capacity = workers_at_work * (self._per_worker or 0.0)
        backlog = self.load.surplus * self.scaling.catch_up
        carries = self.load.rate <= self.scaling.limits[1] * capacity
        # the backlog is that at the end of a growth at home, if there is one
        seconds = self.burst_seconds - (self.grow_seconds if workers_at_work > self.total else 0.0)
        return carries and backlog <= (capacity - self.load.rate) * seconds

    def workers_soon(self, reader: Mode) -> int:
        """Return the most workers that the tier may soon have, for a tier that reads its output.

        A reader that acts does not count on advice, because nobody may follow it.
        """
        follows = self.decides and (self.scaling.mode is Mode.ACT or reader is not Mode.ACT)
        return max(self.total, self.limit.workers) if follows else self._at_home + self.bounds.away

    @cached_property
    def trend(self) -> Trend | None:
        """Since when the load has needed more workers, or fewer; None: neither."""
        if self.needed is None or self.changing or not self.decides:
            return None
        low, high = self.scaling.limits
        more = self.needed > self.total and (self.utilisation > high or self.overloaded)
        if not more and not (self.needed < self.total and self.utilisation < low):
            return None
        before = self.memory.trend
        if before is None or before.more is not more or self.wanted != self.memory.wanted:
            return Trend(more=more, since=self.now, most=self.needed)
        settled = elapsed(self.now, before.since) > SETTLING_SECONDS
        most = max(before.most, self.needed) if settled else self.needed
        return Trend(more=more, since=before.since, most=most)

    @property
    def foreseen(self) -> bool:
        """Whether the load is one of past weeks, and has not come yet."""
        week, readings = self.memory.week, self.memory.readings
        return week is not None and readings is not None and self.load.rate > readings.rate_in

    @property
    def _at_home(self) -> int:
        """The workers at home now, or else the number that the layers below give."""
        return self.bounds.base if self.signals is None else self.signals.workers - self.bounds.away

    @property
    def _per_worker(self) -> float | None:
        return None if self.memory.readings is None else self.memory.readings.per_worker

    @property
    def _capacity(self) -> float:
        """The records a second that all wanted workers can process."""
        return self.total * (self._per_worker or 0.0)

    def _limits_of_useless_growth(self) -> Iterator[Limit]:
        """Yield the limits that come from earlier growth that did not help, or cannot help."""
        block, starvation = self.memory.block, self.memory.starvation
        no_time = "its hosts have no processor time left"
        if block is not None:
            left = seconds_until_retry(block, self.now, self.scaling.retry_after)
            effect = (
                f"{workers(block.after)} did {block.done_after:,.0f}/s "
                f"where {block.before} did {block.done_before:,.0f}/s"
            )
            if left > 0:
                cause = no_time if starvation is not None else f"retry after {left:.0f} s or less load"
                yield Limit(max(self.lowest, block.before), f"{effect}; {cause}")
            else:
                yield Limit(max(block.after, self.total + 1), effect)
        if starvation is not None and starvation.tried is not None:
            did = "tried" if self.scaling.mode is Mode.ACT else "advised"
            reason = f"{no_time}, and {workers(starvation.tried)} were {did}"
            yield Limit(self.total, reason)
