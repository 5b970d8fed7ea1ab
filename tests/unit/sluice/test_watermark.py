"""The watermark never passes a record that waits, however unevenly partitions are read, and is Spark's own where none waits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.records.watermark import Watermark

LATENESS, APART = 60, 300
"""As a tier says it, and as the platform adds to it."""
DELAY = LATENESS + APART


class Record(NamedTuple):
    arrived: int
    time: int


@dataclass
class Reader:
    """Plays Spark: a batch is judged by the watermark that the batches before have left."""

    watermark: int = 0
    aligned: Watermark = field(default_factory=Watermark)
    late: list[Record] = field(default_factory=list)

    def batch(self, records: Sequence[Record], waiting: Sequence[Record]) -> None:
        self.late += [each for each in records if each.time <= self.watermark]
        newest = max((each.time for each in records), default=None)
        (allowed,) = self.aligned.after([newest], [each.arrived for each in waiting], self.watermark)
        if allowed is not None:
            self.watermark = max(self.watermark, allowed - DELAY)


begins = st.integers(10_000, 20_000)
put = st.tuples(
    st.just("put"),
    st.integers(0, 2),
    st.integers(0, 900),
    st.integers(0, APART - 1),
    st.integers(0, LATENESS),
)
"""A record comes to a partition: how long after the one before it, how long it was under way, and how old it was when it arrived."""
read = st.tuples(
    st.just("read"),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
    st.integers(1, 3),
    st.just(0),
    st.just(0),
)
"""A batch takes so many of each partition; then so many of those that wait are looked at."""


@settings(max_examples=200, deadline=None)
@given(begins, st.lists(put | read, max_size=60))
def test_no_record_that_came_in_time_is_late_however_it_is_read(
    now: int, steps: list[tuple[Any, ...]]
) -> None:
    logs: list[list[Record]] = [[], [], []]
    at, reader = [0, 0, 0], Reader()

    def batch(takes: Sequence[int], looks: int) -> None:
        ends = [min(len(log), begin + take) for log, begin, take in zip(logs, at, takes, strict=True)]
        taken = [each for log, begin, end in zip(logs, at, ends, strict=True) for each in log[begin:end]]
        at[:] = ends
        reader.batch(
            taken, [each for log, end in zip(logs, ends, strict=True) for each in log[end : end + looks]]
        )

    for what, first, second, under_way, age in steps:
        if what == "put":
            now += second
            logs[first].append(Record(now - under_way, now - under_way - age))
        else:
            batch(first, second)
    while at != [len(log) for log in logs]:
        batch([1, 2, 1], 1)
    assert reader.late == []
    # all is read: the watermark is what Spark would have made of it alone
    batch([0, 0, 0], 1)
    times = [each.time for log in logs for each in log]
    assert reader.watermark == max(0, max(times, default=0) - DELAY)


ways = st.lists(st.lists(st.integers(0, 3_000), max_size=12).map(sorted), min_size=2, max_size=4)
"""What came by ways of its own through the tier before, each in order; one may be an hour behind another."""


@settings(max_examples=100, deadline=None)
@given(ways, st.randoms(use_true_random=False), st.integers(1, 5))
def test_ways_that_mix_in_a_partition_are_seen_ahead(
    arrivals: list[list[int]], chance: Random, size: int
) -> None:
    """Each round has one record of each way that has any left, in any order: so many ahead are enough to see all of them."""
    log: list[Record] = []
    for number in range(max(map(len, arrivals))):
        mixed = [
            Record(10_000 + way[number], 10_000 + way[number] - LATENESS)
            for way in arrivals
            if number < len(way)
        ]
        chance.shuffle(mixed)
        log += mixed
    reader = Reader()
    for begin in range(0, len(log), size):
        end = begin + size
        reader.batch(log[begin:end], log[end : end + 2 * len(arrivals)])
    assert reader.late == []


def test_it_is_held_while_kafka_does_not_say_what_waits() -> None:
    aligned = Watermark()
    assert aligned.after([5_000, None], None, 0) == [None, None]
    # and is not behind for long: what was newest is remembered
    assert aligned.after([4_000, None], [], 0) == [5_000, None]


def test_what_is_late_already_is_not_waited_for() -> None:
    assert Watermark().after([5_000], [900, 4_000], 1_000) == [3_999]
    assert Watermark().after([5_000], [900], 1_000) == [5_000]


def test_each_input_has_its_own_newest_time() -> None:
    aligned = Watermark()
    assert aligned.after([5_000, 7_000], [6_000], 0) == [5_000, 5_999]
    assert aligned.after([None, None], [], 0) == [5_000, 7_000]
