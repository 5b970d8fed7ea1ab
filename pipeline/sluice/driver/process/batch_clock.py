"""How long the micro-batches of a tier that writes streams take, from Spark's reports. Pure."""

from dataclasses import dataclass, field

from sluice.driver.engine.batch_cost import BatchCost


@dataclass(frozen=True)
class EndedBatch:
    """Spark's last report of a batch with records."""

    number: int
    began: str
    """Spark's time stamp, which tells two batches of the same number apart."""
    seconds: float
    records: int


@dataclass
class BatchClock:
    """Adds up the batches that have ended, and the time of the one that runs.

    Spark reports a batch when it has ended. Without the one that runs, a tier with long batches
    would seem idle.
    """

    busy_seconds: float = 0.0
    """The time of all batches since the start. It only grows."""
    fixed_seconds: float = 0.0
    """The part of `busy_seconds` that does not depend on the number of records."""
    _cost: BatchCost = field(default_factory=BatchCost)
    _last: EndedBatch | None = None
    _ended_seconds: float = 0.0
    _running_since: float | None = None
    """When a look first saw the batch that runs."""

    def look(self, now: float, last: EndedBatch | None, *, runs: bool, workers: int) -> None:
        """Take what Spark says now; `runs` tells whether a batch runs."""
        if last is not None and last != self._last:
            # a batch may have come and gone between two looks
            count = max(1, last.number - self._last.number) if self._last is not None else 1
            self._cost.add(last.records / max(1, workers), last.seconds)
            self._ended_seconds += count * last.seconds
            self.fixed_seconds += count * self._cost.fixed
            self._last, self._running_since = last, None
        if not runs:
            self._running_since = None
        elif self._running_since is None:
            self._running_since = now
        running = 0.0 if self._running_since is None else now - self._running_since
        self.busy_seconds = max(self.busy_seconds, self._ended_seconds + running)
