"""A realtime tier never starts after a record that was not put out, whatever was lost on the way and whatever clocks say."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.kafka.positions import (
    OutputRecord,
    RecordsGoneError,
    acknowledged,
    known_output,
    output_without_gap,
    refuse_shorter,
    start,
)

P = "raw/0"
END = 1_000
STEPS = [0, 1, 50, 900, 9_500, 15_000, -15_000, 3_700_000, -3_700_000]
"""By so much an executor's wall clock goes on, or jumps, from one record to the next. Unit: ms."""


@dataclass
class Partition:
    """What a run has handed over for one partition of its output: Kafka takes and acknowledges it in this order."""

    sent: list[OutputRecord] = field(default_factory=list)
    acked: int = 0


@st.composite
def histories(draw):
    """Runs one after another, each of which is killed while Kafka has not acknowledged all that it sent."""
    output: list[OutputRecord] = []
    started: list[dict[str, int]] = []
    checks = []
    now = 0
    for number in range(draw(st.integers(1, 4))):
        begins = start({P: 0}, {P: END}, started, output)
        begin = (output_without_gap(begins, {P: END}, output) if draw(st.booleans()) else begins)[P]
        checks.append((begin, {record.offset for record in output}))
        started.append({P: begin})
        partitions = [Partition(), Partition()]
        for offset in range(begin, begin + draw(st.integers(0, 30))):
            for each in partitions:
                each.acked += draw(st.integers(0, len(each.sent) - each.acked))
            waiting = [each.sent[each.acked].offset for each in partitions if each.acked < len(each.sent)]
            acked = draw(st.sampled_from([None, min(waiting, default=offset)]))
            now += draw(st.sampled_from(STEPS))
            draw(st.sampled_from(partitions)).sent.append(
                OutputRecord(f"entry/{number}", P, offset, now, acked)
            )
        for each in partitions:  # of what was under way, a beginning arrives
            output += each.sent[: draw(st.integers(each.acked, len(each.sent)))]
    return checks


@given(histories())
def test_everything_before_the_start_was_put_out(checks):
    done: set[int] = set()
    for begin, seen in checks:
        done |= seen
        assert set(range(begin)) <= done


def test_gapless_output_is_not_repeated_and_nothing_beyond_input_counts():
    tail = [OutputRecord("entry/1", P, offset, 0) for offset in (3, 4, 5, 7)]
    assert output_without_gap({P: 3, "raw/1": 9}, {P: END, "raw/1": END}, tail) == {P: 6, "raw/1": 9}
    assert output_without_gap({P: 4}, {P: 5}, tail) == {P: 5}


def test_a_steady_run_is_continued_from_where_its_output_is_acknowledged():
    tail = [
        OutputRecord("entry/1", P, offset, 0, offset - 20 if offset % 16 == 0 else None)
        for offset in range(100, 500)
    ]
    assert start({P: 0}, {P: END}, [{P: 0}], tail) == {P: 476}


def test_records_of_an_older_version_tell_nothing():
    tail = [OutputRecord("entry/1", P, offset, offset * 1_000) for offset in range(500)]
    assert start({P: 0}, {P: END}, [{P: 70}], tail) == {P: 70}


def test_a_partition_that_shows_nothing_starts_where_the_last_run_started():
    assert start(
        {P: 0, "raw/1": 0}, {P: END, "raw/1": END}, [{P: 70, "raw/1": 40}, {P: 80, "raw/1": 90}], []
    ) == {P: 80, "raw/1": 90}


def test_the_very_first_run_starts_with_the_oldest_record():
    assert start({P: 17}, {P: END}, [], []) == {P: 17}


def test_what_is_acknowledged_is_told_of_each_partition():
    tail = [
        OutputRecord("entry/1", P, 105, 0, 100),
        OutputRecord("entry/1.1", P, 101, 0, 90),
        OutputRecord("entry/1", "raw/1", 7, 0),
    ]
    assert acknowledged(tail) == {P: 100}


def test_records_that_are_gone_are_said_loudly():
    with pytest.raises(RecordsGoneError, match=r"raw/0: offsets 5 to 9 were never processed.*retention"):
        start({P: 10}, {P: 20}, [{P: 5}], [])


def test_an_input_that_is_shorter_than_what_was_read_of_it_is_refused():
    tail = [OutputRecord("entry/1", P, 40, 0), OutputRecord("entry/1", P, 50, 0, 41)]
    done = known_output([{P: 7, "raw/1": 9}], tail)
    assert done == {P: 41, "raw/1": 9}
    refuse_shorter(done, {P: 41, "raw/1": 12, "raw/2": 0}, "")
    with pytest.raises(RecordsGoneError, match=r"raw/0 ends at 40, and was read up to 41: .*; call somebody"):
        refuse_shorter(done, {P: 40, "raw/1": 12}, "call somebody")
