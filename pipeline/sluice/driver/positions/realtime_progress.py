"""Up to where the output of a realtime run is complete, also of records without output (decision
record 0042). Pure.

A task hands the output of one record to Kafka's producer before it reads the next record. Kafka has
that output within `SETTLED_MS`, or the executor has ended (`sluice.kafka.positions`). So if an
executor still works that much later, the output of all records that its tasks had read is complete,
except for the last record of each task.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sluice.kafka.positions import SETTLED_MS

EVERY_SECONDS = 60.0
"""Time between two results."""
BROKEN_SECONDS = 4.0
"""After a longer pause between two calls the driver itself may have stood still.

Then it is unknown how old the executors' reports are.
"""
LATER_SECONDS = SETTLED_MS / 1000 + BROKEN_SECONDS
"""Time from the first look to the second.

Reports that come after the second look were sent at least `SETTLED_MS` after the first.
"""
HEARD_SECONDS = 5.0
"""Time between the later looks, in which each executor reports twice."""


@dataclass(frozen=True)
class Task:
    """A running task, and the partition that it reads."""

    number: int
    """Unique in the session."""
    executor: str
    partition: str
    begin: int
    """Its first offset."""
    read: int
    """How many records it has read at least, as last reported."""


class RealtimeProgress:
    """Looks four times: what was read, again after the settling time, which executors worked since,
    and whether they go on.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin when the run begins."""
        self._clock = clock
        self._due = clock() + EVERY_SECONDS
        self._looked = clock()
        self._sights: list[Mapping[int, Task]] = []
        self._reported: dict[str, int] = {}

    def newly_complete(self, tasks: Callable[[], Sequence[Task]]) -> dict[str, int]:
        """Return the positions before which output is complete, if there is news; empty most of the
        time.

        Call it at least every BROKEN_SECONDS. It asks for `tasks`, all of them or none, only at a
        look.
        """
        now = self._clock()
        if now > self._looked + BROKEN_SECONDS and self._sights:
            self._again(now)
        self._looked = now
        if now < self._due:
            return {}
        seen = {task.number: task for task in tasks()}
        self._looked = now = self._clock()  # the question took time, and the answer may be as new as this
        if not seen or (self._sights and seen.keys() != self._sights[0].keys()):
            self._again(now + EVERY_SECONDS)
            return {}
        self._sights.append(seen)
        match self._sights:
            case [_]:
                self._due = now + LATER_SECONDS
            case [first, second, third, _]:
                self._again(now + EVERY_SECONDS)
                return self.news(_out(first, at_work=_grown(second, third)))
            case _:
                self._due = now + HEARD_SECONDS
        return {}

    def news(self, out: Mapping[str, int]) -> dict[str, int]:
        """Take positions before which output is complete, from any source; return all known ones if
        any has grown.
        """
        before, self._reported = (
            self._reported,
            self._reported
            | {partition: max(at, self._reported.get(partition, at)) for partition, at in out.items()},
        )
        return {} if self._reported == before else dict(self._reported)

    def _again(self, due: float) -> None:
        self._sights = []
        self._due = due


def _grown(before: Mapping[int, Task], after: Mapping[int, Task]) -> frozenset[str]:
    """Return the executors whose tasks have read records in between."""
    return frozenset(task.executor for number, task in after.items() if task.read > before[number].read)


def _out(tasks: Mapping[int, Task], *, at_work: frozenset[str]) -> dict[str, int]:
    """Return the positions before which output is complete; of several tasks on one partition, the
    one behind counts.
    """
    out: dict[str, int] = {}
    for task in tasks.values():
        reached = task.begin + (max(0, task.read - 1) if task.executor in at_work else 0)
        out[task.partition] = min(reached, out.get(task.partition, reached))
    return out
