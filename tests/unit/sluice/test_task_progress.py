"""Hung tasks are found, and tasks that are slow, wait for input or are looked at late do not count
as hung.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.driver.process.task_progress import (
    CLOSER_SECONDS,
    DOUBLED,
    MOST_SECONDS,
    REMEMBERED_SECONDS,
    TOLD_SECONDS,
    Limit,
    TaskProgress,
    Work,
)

HEARTBEAT = 2.0
LOOK = 2.0
PASSED = st.floats(0.0, 100_000.0)
"""Seconds from one look to the next; a host may be suspended for a day."""


def no_counts() -> object:
    return ()


@dataclass
class Partition:
    """A partition of a realtime tier, and the task that reads it.

    A record counts as taken once the record before it is done.
    """

    arrivals: list[float]
    slow: float
    """Seconds that the transform takes for each record."""
    hangs_at: int | None = None
    """The record that the transform never finishes."""
    taken: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.taken, free = [], 0.0
        for number, at in enumerate(sorted(self.arrivals)):
            if self.hangs_at is not None and number > self.hangs_at:
                break
            self.taken.append(max(at, free))
            free = self.taken[-1] + self.slow

    def end(self, now: float) -> int:
        return sum(at <= now for at in self.arrivals)

    def heard(self, now: float) -> int:
        """Return the number of records in the executor's last heartbeat."""
        return sum(at <= now // HEARTBEAT * HEARTBEAT for at in self.taken)


def reported_hung_at(partition: Partition, until: float, *, apart: float = 0.3) -> float | None:
    """Look at intervals until `until`, first at the stream's end and a little later at the task.

    Return the time of the report that the task hangs, or None.
    """
    tasks, now = TaskProgress(), 0.0
    while now < until:
        ends = {"in/0": partition.end(now)}
        if tasks.hung_tasks([Work(1, "h1/0", partition.heard(now + apart), "in/0")], ends, LOOK, no_counts):
            return now
        now += LOOK
    return None


ARRIVALS = st.lists(st.floats(0.0, 300.0), max_size=40)


@settings(max_examples=60)
@given(ARRIVALS, st.floats(0.0, TOLD_SECONDS - 3 * HEARTBEAT - MOST_SECONDS), st.floats(0.0, LOOK))
def test_a_realtime_task_that_is_slow_or_without_input_does_not_hang(
    arrivals: list[float], slow: float, apart: float
) -> None:
    assert reported_hung_at(Partition(arrivals, slow), 600.0, apart=apart) is None


@settings(max_examples=60)
@given(ARRIVALS.filter(bool), st.integers(0, 39))
def test_a_hung_realtime_task_is_found_once_a_record_has_waited(arrivals: list[float], hangs_at: int) -> None:
    hangs_at %= len(arrivals)
    stands = sorted(arrivals)[hangs_at]
    later = [*arrivals, stands + 4 * LOOK]
    at = reported_hung_at(Partition(later, 0.0, hangs_at), 1000.0)
    assert at is not None
    assert TOLD_SECONDS - MOST_SECONDS <= at - stands <= 4 * LOOK + TOLD_SECONDS + 3 * LOOK


@given(st.lists(st.tuples(PASSED, st.integers(1, 5)), max_size=100), st.booleans())
def test_a_task_that_reads_between_late_looks_does_not_hang(
    looks: list[tuple[float, int]], realtime: bool
) -> None:
    tasks, read = TaskProgress(), 0
    for number, (passed, more) in enumerate(looks):
        read += more
        assert (
            tasks.hung_tasks(
                [Work(1, "h1/0", read, "in/0" if realtime else None)],
                {"in/0": 1000 * number},
                passed,
                no_counts,
            )
            == []
        )


@given(st.lists(PASSED, max_size=int(TOLD_SECONDS / MOST_SECONDS)), st.sampled_from([None, "in/0"]))
def test_a_few_late_looks_report_no_hung_task(pauses: list[float], partition: str | None) -> None:
    tasks = TaskProgress(60.0)
    for number, passed in enumerate(pauses):
        assert tasks.hung_tasks([Work(1, "h1/0", 7, partition)], {"in/0": number}, passed, no_counts) == []


def hung_tasks_at_each_look(
    seconds: float, counts: Callable[[float], object], *other_works: Callable[[float], Work]
) -> list[list[int]]:
    """Look at a task of a batch that has read all its input.

    Return the numbers of the hung tasks at each look.
    """
    tasks, hung, now = TaskProgress(2 * TOLD_SECONDS), [], 0.0
    while now <= seconds:
        works = [Work(1, "h1/0", 20), *(work_at(now) for work_at in other_works)]
        hung_now = tasks.hung_tasks(works, {}, LOOK, lambda at=now: counts(at))
        hung.append([still.work.number for still in hung_now])
        now += LOOK
    return hung


@given(st.floats(1.0, TOLD_SECONDS - CLOSER_SECONDS - 2 * LOOK))
def test_a_task_that_returns_rows_at_intervals_does_not_hang(every: float) -> None:
    assert not any(hung_tasks_at_each_look(900.0, lambda now: now // every))


def test_a_batch_task_hangs_when_only_it_stands_still() -> None:
    hung = hung_tasks_at_each_look(300.0, lambda now: min(now, 90.0), lambda now: Work(2, "h1/0", int(now)))
    first = next(number for number, numbers in enumerate(hung) if numbers) * LOOK
    assert hung[-1] == [1], "only the stalled task hangs, and not the task beside it"
    assert 90.0 + TOLD_SECONDS <= first <= 90.0 + TOLD_SECONDS + CLOSER_SECONDS + 3 * LOOK


def test_aborted_records_do_not_count_as_waiting() -> None:
    tasks, ends = TaskProgress(), 10
    for number in range(200):
        ends += number == 5
        for still in tasks.hung_tasks([Work(1, "h1/0", 7, "in/0")], {"in/0": ends}, LOOK, no_counts):
            tasks.excuse(still)
        assert number < 45 or not tasks.hung_tasks(
            [Work(1, "h1/0", 7, "in/0")], {"in/0": ends}, 0.0, no_counts
        )


@given(st.lists(st.floats(0.0, 2 * REMEMBERED_SECONDS), max_size=30))
def test_each_restart_within_a_day_doubles_the_limit(intervals: list[float]) -> None:
    limit, now, ends = Limit(600.0), 0.0, list[float]()
    for interval in intervals:
        now += interval
        recent = sum(now - end < REMEMBERED_SECONDS for end in ends)
        assert limit.now(now) == 600.0 * 2 ** min(recent, DOUBLED)
        limit.ended(now)
        ends.append(now)
    assert Limit(None).now(now) is None


@given(st.one_of(st.none(), st.floats(60.0, 10_000.0)))
def test_a_batch_task_is_reported_later_than_a_realtime_task(limit: float | None) -> None:
    tasks = TaskProgress(limit)
    assert tasks.told_after(Work(1, "h1/0", 0, "in/0")) == TOLD_SECONDS
    assert tasks.told_after(Work(1, "h1/0", 0)) >= (
        TOLD_SECONDS if limit is None else max(TOLD_SECONDS, limit / 2)
    )
    assert limit is None or tasks.told_after(Work(1, "h1/0", 0)) <= limit
