"""Which tasks process nothing though input waits for them, and when one has hung for too long (decision record 0052). Pure.

Only time counts in which somebody looked: a driver that stood still itself, or could not ask Kafka or the JVM, adds one look at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.api.declarations import MIN_HANGS_AFTER

MOST_SECONDS = 5.0
"""The most that one look adds to a task's time, however late the look comes."""
CLOSER_SECONDS = 10.0
"""After so long without a record read, the counters of Spark's SQL are compared, too."""
TOLD_SECONDS = MIN_HANGS_AFTER
"""A realtime task is reported after so long; a task of a batch after half of its tier's limit, if that is longer.

Progress within a batch shows only in large steps: a Python function takes thousands of records before it returns one.
"""
UNLIMITED_SECONDS = 600.0
"""Stands for the limit of a tier that has none."""
REMEMBERED_SECONDS = 24 * 3600.0
DOUBLED = 4
"""The limit doubles at most so many times."""


@dataclass(frozen=True)
class Work:
    """A task that runs, as it was heard last."""

    number: int
    """No other one of the session has it."""
    place: str
    """Its executor, `address/id`."""
    read: int
    """How many records it has read."""
    partition: str | None = None
    """The partition that a realtime task reads. None: a task of a batch, which ends when its records are processed."""


@dataclass(frozen=True)
class Still:
    """A task that has read nothing since a while."""

    work: Work
    seconds: float = 0.0
    """How long input has waited for it meanwhile."""
    end: int | None = None
    """In realtime: what comes to its partition from this offset on was not there when it read last. None: that is not known yet."""

    def then(self, work: Work, end: int | None, passed: float) -> "Still":
        """Return it as of the next look; `end` is where its partition ends, asked before the tasks were."""
        if work.read != self.work.read or (work.partition is not None and end is None):
            return Still(work)
        if work.partition is None:
            return Still(work, self.seconds + min(passed, MOST_SECONDS))
        if self.end is None or end is None:
            return Still(work, 0.0, end)
        return Still(work, self.seconds + min(passed, MOST_SECONDS) if end > self.end else 0.0, self.end)


@dataclass
class TaskProgress:
    """The tasks that run, and how long each has processed nothing."""

    limit: float | None = None
    """The tier's. Unit: seconds."""
    _stills: dict[int, Still] = field(default_factory=dict)
    _counts: object = None
    """All that the tasks of batches had counted, at the last look that was closer."""

    def look(
        self, works: Sequence[Work], ends: Mapping[str, int], passed: float, counts: Callable[[], object]
    ) -> list[Still]:
        """Return the tasks that have hung for longer than is told; `counts` tells closer what those of batches have done, all together."""
        before, self._stills = self._stills, {}
        for work in works:
            end = None if work.partition is None else ends.get(work.partition)
            still = before.get(work.number)
            self._stills[work.number] = Still(work) if still is None else still.then(work, end, passed)
        self._look_closer(counts)
        return [still for still in self._stills.values() if still.seconds >= self.told_after(still.work)]

    def told_after(self, work: Work) -> float:
        """Return how long a task may process nothing until that is told."""
        return (
            TOLD_SECONDS
            if work.partition is not None
            else max(TOLD_SECONDS, (self.limit or UNLIMITED_SECONDS) / 2)
        )

    def _look_closer(self, counts: Callable[[], object]) -> None:
        """A task of a batch that reads nothing more may still be at work on what it has read, which a Python function does in hundreds."""
        batch = [still for still in self._stills.values() if still.work.partition is None]
        if not any(still.seconds >= CLOSER_SECONDS for still in batch):
            return
        before, self._counts = self._counts, counts()
        if before is not None and before != self._counts:
            for still in batch:
                self._stills[still.work.number] = Still(still.work)

    def excuse(self, still: Still) -> None:
        """Begin anew with a task for which no record waits: what has come was taken back by its sender."""
        self._stills[still.work.number] = replace(still, seconds=0.0, end=None)

    def forget(self) -> None:
        """Begin anew with all of them."""
        self._stills, self._counts = {}, None


@dataclass
class Limit:
    """How long a task may hang until its executor is ended: twice as long after each time on one day, so that a slow one gets through."""

    seconds: float | None
    """None: it is told, and nothing more."""
    _ended: list[float] = field(default_factory=list)

    def now(self, at: float) -> float | None:
        """Return the limit as of now."""
        self._ended = [each for each in self._ended if at - each < REMEMBERED_SECONDS]
        return None if self.seconds is None else self.seconds * 2 ** min(len(self._ended), DOUBLED)

    def ended(self, at: float) -> None:
        """Take note that an executor was ended."""
        self._ended.append(at)
