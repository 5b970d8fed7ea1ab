"""Which tasks hang: never one that is only slow, waits for input, or is looked at late; always one that processes nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import assume, given, settings
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
"""From one look to the next: also a host that was suspended for a day."""


def nothing() -> object:
    return ()


@dataclass
class Partition:
    """A partition of a realtime tier, and the task that reads it: a record is counted as it is taken, once the one before is done."""

    arrivals: list[float]
    slow: float
    """So long the transform takes for each record."""
    hangs_at: int | None = None
    """The record that it never returns from."""
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
        """Return what the executor said with its last heartbeat."""
        return sum(at <= now // HEARTBEAT * HEARTBEAT for at in self.taken)


def told(partition: Partition, until: float, *, apart: float = 0.3) -> float | None:
    """Look on and on, the ends first and the tasks a little later; return when it is told that the task hangs."""
    tasks, now = TaskProgress(), 0.0
    while now < until:
        ends = {"in/0": partition.end(now)}
        if tasks.look([Work(1, "h1/0", partition.heard(now + apart), "in/0")], ends, LOOK, nothing):
            return now
        now += LOOK
    return None


ARRIVALS = st.lists(st.floats(0.0, 300.0), max_size=40)


@settings(max_examples=60)
@given(ARRIVALS, st.floats(0.0, TOLD_SECONDS - 3 * HEARTBEAT - MOST_SECONDS), st.floats(0.0, LOOK))
def test_a_realtime_task_that_is_slow_or_without_input_does_not_hang(
    arrivals: list[float], slow: float, apart: float
) -> None:
    assert told(Partition(arrivals, slow), 600.0, apart=apart) is None


@settings(max_examples=60)
@given(ARRIVALS, st.integers(0, 40))
def test_a_hung_realtime_task_is_found_once_a_record_has_waited(arrivals: list[float], hangs_at: int) -> None:
    assume(hangs_at < len(arrivals))
    stands = sorted(arrivals)[hangs_at]
    later = [*arrivals, stands + 4 * LOOK]
    at = told(Partition(later, 0.0, hangs_at), 1000.0)
    assert at is not None
    assert TOLD_SECONDS - MOST_SECONDS <= at - stands <= 4 * LOOK + TOLD_SECONDS + 3 * LOOK


@given(st.lists(st.tuples(PASSED, st.integers(1, 5)), max_size=100), st.booleans())
def test_a_task_that_reads_between_looks_goes_on_however_late_they_come(
    looks: list[tuple[float, int]], realtime: bool
) -> None:
    tasks, read = TaskProgress(), 0
    for number, (passed, more) in enumerate(looks):
        read += more
        assert (
            tasks.look(
                [Work(1, "h1/0", read, "in/0" if realtime else None)],
                {"in/0": 1000 * number},
                passed,
                nothing,
            )
            == []
        )


@given(st.lists(PASSED, max_size=int(TOLD_SECONDS / MOST_SECONDS)), st.sampled_from([None, "in/0"]))
def test_a_few_late_looks_tell_nothing(passed: list[float], partition: str | None) -> None:
    tasks = TaskProgress(60.0)
    for number, each in enumerate(passed):
        assert tasks.look([Work(1, "h1/0", 7, partition)], {"in/0": number}, each, nothing) == []


def still_for(
    seconds: float, counts: Callable[[float], object], *others: Callable[[float], Work]
) -> list[list[int]]:
    """Look at a task of a batch that has read all of its input; return the numbers of those that are told at each look."""
    tasks, found, now = TaskProgress(2 * TOLD_SECONDS), [], 0.0
    while now <= seconds:
        at = now
        works = [Work(1, "h1/0", 20), *(other(at) for other in others)]
        found.append([still.work.number for still in tasks.look(works, {}, LOOK, lambda: counts(at))])  # noqa: B023 — asked within
        now += LOOK
    return found


@given(st.floats(1.0, TOLD_SECONDS - CLOSER_SECONDS - 2 * LOOK))
def test_a_task_whose_python_function_gives_rows_back_now_and_then_is_slow(every: float) -> None:
    assert not any(still_for(900.0, lambda now: now // every))


def test_a_batch_task_hangs_when_only_it_stands_still() -> None:
    found = still_for(300.0, lambda now: min(now, 90.0), lambda now: Work(2, "h1/0", int(now)))
    first = next(number for number, each in enumerate(found) if each) * LOOK
    assert found[-1] == [1], "not the one beside it"
    assert 90.0 + TOLD_SECONDS <= first <= 90.0 + TOLD_SECONDS + CLOSER_SECONDS + 3 * LOOK


def test_what_its_sender_has_taken_back_waits_for_nobody() -> None:
    tasks, ends = TaskProgress(), 10
    for number in range(200):
        ends += number == 5
        for still in tasks.look([Work(1, "h1/0", 7, "in/0")], {"in/0": ends}, LOOK, nothing):
            tasks.excuse(still)
        assert number < 45 or not tasks.look([Work(1, "h1/0", 7, "in/0")], {"in/0": ends}, 0.0, nothing)


@given(st.lists(st.floats(0.0, 2 * REMEMBERED_SECONDS), max_size=30))
def test_each_end_on_one_day_doubles_the_limit(passed: list[float]) -> None:
    limit, now, ends = Limit(600.0), 0.0, list[float]()
    for each in passed:
        now += each
        recent = sum(now - end < REMEMBERED_SECONDS for end in ends)
        assert limit.now(now) == 600.0 * 2 ** min(recent, DOUBLED)
        limit.ended(now)
        ends.append(now)
    assert Limit(None).now(now) is None


@given(st.one_of(st.none(), st.floats(60.0, 10_000.0)))
def test_what_is_coarse_is_told_later(limit: float | None) -> None:
    tasks = TaskProgress(limit)
    assert tasks.told_after(Work(1, "h1/0", 0, "in/0")) == TOLD_SECONDS
    assert tasks.told_after(Work(1, "h1/0", 0)) >= (
        TOLD_SECONDS if limit is None else max(TOLD_SECONDS, limit / 2)
    )
    assert limit is None or tasks.told_after(Work(1, "h1/0", 0)) <= limit
