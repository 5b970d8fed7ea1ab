"""Up to where all is out of what a realtime run has read, also where nothing comes out of it (decision record 0042). Pure.

A task hands what it made of one record over before it reads the next. What was handed over is out within `SETTLED_MS`, or its executor has
ended (`sluice.kafka.positions`). So where an executor still works that much later, all is out that its tasks had read, but for the last
record of each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sluice.kafka.positions import SETTLED_MS

EVERY_SECONDS = 60.0
"""Between two times that it is told."""
BROKEN_SECONDS = 4.0
"""Who has not looked for so long may itself have stood still, and does not know how old what it hears is."""
LATER_SECONDS = SETTLED_MS / 1000 + BROKEN_SECONDS
"""From the first look to the second: what is heard after that one was said `SETTLED_MS` after the first one, or later."""
HEARD_SECONDS = 5.0
"""From each look to the next after that: in this time the driver hears twice from each executor."""


@dataclass(frozen=True)
class Task:
    """One that runs, and the partition that it reads."""

    number: int
    """No other one of this session has it."""
    executor: str
    partition: str
    begin: int
    """Its first offset."""
    read: int
    """How many records it has read, as far as was heard: at least so many."""


class Reached:
    """Looks four times: at what was read, whether it is out by now, which executors have worked since, and whether they go on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin when the run begins."""
        self._clock = clock
        self._due = clock() + EVERY_SECONDS
        self._looked = clock()
        self._sights: list[Mapping[int, Task]] = []
        self._told: dict[str, int] = {}

    def look(self, tasks: Callable[[], Sequence[Task]]) -> dict[str, int]:
        """Return up to where all is out by what was read a while ago, when there is news; nothing most of the time.

        To be called again and again. It asks for `tasks`, all of them or none, when it has to know.
        """
        now = self._clock()
        if now > self._looked + BROKEN_SECONDS and self._sights:
            self._again(now)
        self._looked = now
        if now < self._due:
            return {}
        seen = {task.number: task for task in tasks()}
        self._looked = now = self._clock()  # what it has seen may be as new as this
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
        """Take up to where all is out, whatever told it; return all that is known of it, if that is more than before."""
        before, self._told = (
            self._told,
            self._told | {partition: max(at, self._told.get(partition, at)) for partition, at in out.items()},
        )
        return {} if self._told == before else dict(self._told)

    def _again(self, due: float) -> None:
        self._sights = []
        self._due = due


def _grown(before: Mapping[int, Task], after: Mapping[int, Task]) -> frozenset[str]:
    """Return the executors that have read in between."""
    return frozenset(task.executor for number, task in after.items() if task.read > before[number].read)


def _out(tasks: Mapping[int, Task], *, at_work: frozenset[str]) -> dict[str, int]:
    """Return up to where all is out, by partition: where it began, or further; where several tasks read one, by the one that is behind."""
    out: dict[str, int] = {}
    for task in tasks.values():
        reached = task.begin + (max(0, task.read - 1) if task.executor in at_work else 0)
        out[task.partition] = min(reached, out.get(task.partition, reached))
    return out
