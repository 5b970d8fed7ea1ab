"""Tells which tasks process nothing although input waits, and when one has hung too long (decision
record 0052). Pure.

Only watched time counts. A driver that stood still itself, or got no answer from Kafka or the JVM,
adds the time of one look at most.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.api.declarations import MIN_HANGS_AFTER

MOST_SECONDS = 5.0
"""The most that one look adds to a task's time, however late the look comes."""
CLOSER_SECONDS = 10.0
"""After this long without a record read, the counters of Spark's SQL are compared, too."""
TOLD_SECONDS = MIN_HANGS_AFTER
"""A realtime task is reported after this time; a task of a batch after half of its tier's limit, if
that is longer.

Progress within a batch shows only in large steps: a Python function takes thousands of records
before it returns one.
"""
UNLIMITED_SECONDS = 600.0
"""Used for the report where a tier has no limit."""
REMEMBERED_SECONDS = 24 * 3600.0
"""How long the end of an executor counts."""
DOUBLED = 4
"""How many times the limit doubles at most."""


@dataclass(frozen=True)
class Work:
    """A task that runs, as Spark last reported it."""

    number: int
    """Unique in the session."""
    place: str
    """Its executor, `address/id`."""
    read: int
    """How many records it has read."""
    partition: str | None = None
    """The partition that a realtime task reads.

    None: a task of a batch, which ends when its records are processed.
    """


@dataclass(frozen=True)
class Still:
    """A task that has read nothing for a while."""

    work: Work
    seconds: float = 0.0
    """How long input has waited for it meanwhile."""
    end: int | None = None
    """Realtime: records from this offset on came after the task last read. None: not known yet."""

    def then(self, work: Work, end: int | None, passed: float) -> "Still":
        """Return the task as of the next look; `end` is its partition's end, asked before the tasks
        were.
        """
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
    """The tier's limit. Unit: seconds."""
    _stills: dict[int, Still] = field(default_factory=dict)
    _counts: object = None
    """The SQL counters of all batch tasks at the last closer look."""

    def hung_tasks(
        self, works: Sequence[Work], ends: Mapping[str, int], passed: float, counts: Callable[[], object]
    ) -> list[Still]:
        """Return the tasks that have hung long enough to be reported.

        `counts` returns the SQL counters of all batch tasks together, which show finer progress.
        """
        before, self._stills = self._stills, {}
        for work in works:
            end = None if work.partition is None else ends.get(work.partition)
            still = before.get(work.number)
            self._stills[work.number] = Still(work) if still is None else still.then(work, end, passed)
        self._look_closer(counts)
        return [still for still in self._stills.values() if still.seconds >= self.told_after(still.work)]

    def told_after(self, work: Work) -> float:
        """Return how long a task may process nothing before it is reported. Unit: seconds."""
        return TOLD_SECONDS if work.partition is not None else batch_told_after(self.limit)

    def _look_closer(self, counts: Callable[[], object]) -> None:
        """Compare the SQL counters: a batch task that reads no more may still process records it
        has read.
        """
        batch = [still for still in self._stills.values() if still.work.partition is None]
        if not any(still.seconds >= CLOSER_SECONDS for still in batch):
            return
        before, self._counts = self._counts, counts()
        if before is not None and before != self._counts:
            for still in batch:
                self._stills[still.work.number] = Still(still.work)

    def excuse(self, still: Still) -> None:
        """Start the time of a task again for which no record waits: senders aborted what
        has come.
        """
        self._stills[still.work.number] = replace(still, seconds=0.0, end=None)

    def forget(self) -> None:
        """Start the time of all tasks again."""
        self._stills, self._counts = {}, None


def batch_told_after(limit: float | None) -> float:
    """Return how long a batch may make no progress before this is reported. Unit: seconds."""
    return max(TOLD_SECONDS, (limit or UNLIMITED_SECONDS) / 2)


@dataclass
class Limit:
    """How long a task may hang before its executor is ended; doubled after each end within a day,
    for slow tasks.
    """

    seconds: float | None
    """None: hung tasks are only reported."""
    _ended: list[float] = field(default_factory=list)

    def now(self, at: float) -> float | None:
        """Return the present limit. Unit: seconds."""
        self._ended = [ended for ended in self._ended if at - ended < REMEMBERED_SECONDS]
        return None if self.seconds is None else self.seconds * 2 ** min(len(self._ended), DOUBLED)

    def ended(self, at: float) -> None:
        """Note that an executor was ended."""
        self._ended.append(at)
