"""One tier at the moment of a decision, with the numbers that the rules compare."""

import math
from dataclasses import dataclass

from sluice_ops.model.scaler import Mode, TierMemory, TierScaling, Trend
from sluice_ops.model.wording import workers
from sluice_ops.planning.scaler.demand import Flow, workers_for
from sluice_ops.planning.scaler.readings import elapsed
from sluice_ops.planning.scaler.signals import Bounds, Signals


@dataclass(frozen=True)
class Limit:
    """The most workers that a tier can have now, and why."""

    workers: int
    reason: str
    at_home: bool = False
    """Whether the tier could have more if home had room."""


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

    @property
    def free(self) -> bool:
        """Whether the number is the scaler's to choose."""
        return self.scaling.mode is not Mode.OFF and self.bounds.held_by is None

    @property
    def highest(self) -> int:
        return min(self.bounds.maximum, self.bounds.partitions)

    @property
    def lowest(self) -> int:
        return min(max(1, self.bounds.minimum), self.highest)

    @property
    def wanted(self) -> int:
        """The number before this decision."""
        if self.scaling.mode is Mode.OFF:
            wanted = self.bounds.base
        elif self.memory.wanted is None or self.bounds.held_by is not None:
            wanted = self._present
        else:
            wanted = self.memory.wanted
        return max(self.lowest, min(self.highest, wanted))

    @property
    def needed(self) -> int | None:
        """The workers that the load needs, whether or not it can have them; None: not known."""
        if self.signals is None or self._per_worker is None:
            return None
        return workers_for(self.load, self._per_worker, self.scaling.utilisation)

    @property
    def utilisation(self) -> float:
        """The part of the capacity of the wanted workers that the load takes."""
        return self.load.rate / self._capacity if self._capacity else math.inf

    @property
    def limit(self) -> Limit:
        """The lowest limit of the tier's workers now."""
        home = max(self.wanted, self._present + self.bounds.room)
        limits = [
            Limit(self.bounds.maximum, f"its maximum is {self.bounds.maximum}"),
            Limit(self.bounds.partitions, f"it has {self.bounds.partitions} partitions"),
            Limit(home, f"home has room for {self.bounds.room} more", at_home=True),
        ]
        return min([*limits, *self._blocked()], key=lambda limit: limit.workers)

    def workers_soon(self, reader: Mode) -> int:
        """Return the most workers that the tier may soon have, for a tier that reads its output.

        A reader that acts does not count on advice, because nobody may follow it.
        """
        follows = self.free and (self.scaling.mode is Mode.ACT or reader is not Mode.ACT)
        return self.limit.workers if follows else self._present

    @property
    def trend(self) -> Trend | None:
        """Since when the load has needed more workers, or fewer; None: neither."""
        if self.needed is None or self.changing or not self.free:
            return None
        low, high = self.scaling.limits
        too_high = self.utilisation > high or self.load.rate + self.load.surplus > self._capacity
        more = self.needed > self.wanted and too_high
        if not more and not (self.needed < self.wanted and self.utilisation < low):
            return None
        before = self.memory.trend
        if before is None or before.more is not more or self.wanted != self.memory.wanted:
            return Trend(more=more, since=self.now, most=self.needed)
        return Trend(more=more, since=before.since, most=max(before.most, self.needed))

    @property
    def foreseen(self) -> bool:
        """Whether the load is one of past weeks, and has not come yet."""
        known = self.memory
        return (
            known.week is not None and known.readings is not None and self.load.rate > known.readings.rate_in
        )

    @property
    def _present(self) -> int:
        """The workers now, or else the number that the layers below give."""
        return self.bounds.base if self.signals is None else self.signals.workers

    @property
    def _per_worker(self) -> float | None:
        return None if self.memory.readings is None else self.memory.readings.per_worker

    @property
    def _capacity(self) -> float:
        """The records a second that the wanted workers can process."""
        return self.wanted * (self._per_worker or 0.0)

    def _blocked(self) -> list[Limit]:
        block = self.memory.block
        if block is None:
            return []
        left = self.scaling.retry_after - elapsed(self.now, block.at)
        reason = (
            f"{workers(block.after)} processed {block.done_after:,.0f}/s "
            f"after {block.before} had processed {block.done_before:,.0f}/s; "
            f"the next attempt is in {left:.0f} s, or after a lower load"
        )
        return [Limit(max(self.lowest, block.before), reason)]
