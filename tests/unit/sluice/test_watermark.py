"""The watermark never passes a waiting record, however unevenly partitions are read.

Without waiting records, it is Spark's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.records.watermark import Watermark

LATENESS, APART = 60, 300
"""Seconds of lateness that a tier declares, and seconds that the platform adds."""
DELAY = LATENESS + APART


class Record(NamedTuple):
    arrived: int
    time: int


@dataclass
class Reader:
    """A reader like Spark: each batch is judged by the watermark that the batches before
    it left.
    """

    watermark: int = 0
    aligned: Watermark = field(default_factory=Watermark)
    late: list[Record] = field(default_factory=list)

    def batch(self, records: Sequence[Record], waiting: Sequence[Record]) -> None:
        self.late += [record for record in records if record.time <= self.watermark]
        newest = max((record.time for record in records), default=None)
        (allowed,) = self.aligned.after([newest], [record.arrived for record in waiting], self.watermark)
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
"""A record arrives in a partition: seconds after the record before it, seconds under way, and age
at arrival.
"""
read = st.tuples(
    st.just("read"),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
    st.integers(1, 3),
    st.just(0),
    st.just(0),
)
"""A batch takes a number of records of each partition; then a number of the waiting records is
looked at.
"""


@settings(max_examples=200, deadline=None)
@given(begins, st.lists(put | read, max_size=60))
def test_no_record_that_arrived_in_time_is_late_in_any_read_order(
    now: int, steps: list[tuple[Any, ...]]
) -> None:
    logs: list[list[Record]] = [[], [], []]
    at, reader = [0, 0, 0], Reader()

    def batch(takes: Sequence[int], looks: int) -> None:
        ends = [min(len(log), begin + take) for log, begin, take in zip(logs, at, takes, strict=True)]
        taken = [record for log, begin, end in zip(logs, at, ends, strict=True) for record in log[begin:end]]
        at[:] = ends
        reader.batch(
            taken, [record for log, end in zip(logs, ends, strict=True) for record in log[end : end + looks]]
        )

    for step, first, second, under_way, age in steps:
        if step == "put":
            now += second
            logs[first].append(Record(now - under_way, now - under_way - age))
        else:
            batch(first, second)
    while at != [len(log) for log in logs]:
        batch([1, 2, 1], 1)
    assert reader.late == []
    # all records are read: the watermark equals the one of Spark alone
    batch([0, 0, 0], 1)
    times = [record.time for log in logs for record in log]
    assert reader.watermark == max(0, max(times, default=0) - DELAY)


arrivals_by_path = st.lists(st.lists(st.integers(0, 3_000), max_size=12).map(sorted), min_size=2, max_size=4)
"""Arrival times of records on several paths through the tier before, each in order.

One path may be an hour behind another.
"""


@settings(max_examples=100, deadline=None)
@given(arrivals_by_path, st.randoms(use_true_random=False), st.integers(1, 5))
def test_records_of_paths_mixed_in_a_partition_are_seen_ahead(
    arrivals: list[list[int]], chance: Random, size: int
) -> None:
    """Each round has one record of each path that has any left, in any order.

    Two records of each path ahead are enough to see all paths.
    """
    log: list[Record] = []
    for number in range(max(map(len, arrivals))):
        mixed = [
            Record(10_000 + path[number], 10_000 + path[number] - LATENESS)
            for path in arrivals
            if number < len(path)
        ]
        chance.shuffle(mixed)
        log += mixed
    reader = Reader()
    for begin in range(0, len(log), size):
        end = begin + size
        reader.batch(log[begin:end], log[end : end + 2 * len(arrivals)])
    assert reader.late == []


def test_the_watermark_is_held_while_the_waiting_records_are_unknown() -> None:
    aligned = Watermark()
    assert aligned.after([5_000, None], None, 0) == [None, None]
    # the newest time is remembered, so the watermark soon catches up
    assert aligned.after([4_000, None], [], 0) == [5_000, None]


def test_the_watermark_does_not_wait_for_late_records() -> None:
    assert Watermark().after([5_000], [900, 4_000], 1_000) == [3_999]
    assert Watermark().after([5_000], [900], 1_000) == [5_000]


def test_each_input_has_its_own_newest_time() -> None:
    aligned = Watermark()
    assert aligned.after([5_000, 7_000], [6_000], 0) == [5_000, 5_999]
    assert aligned.after([None, None], [], 0) == [5_000, 7_000]
