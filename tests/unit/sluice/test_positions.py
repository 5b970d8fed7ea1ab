"""A realtime tier never starts behind a record that was not put out, whatever was lost in Kafka and
whatever clocks say.
"""

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
"""Milliseconds by which an executor's wall clock advances, or jumps, between two records."""


@dataclass
class Partition:
    """The records that a run has sent to one output partition.

    Kafka stores and acknowledges them in this order.
    """

    sent: list[OutputRecord] = field(default_factory=list)
    acked: int = 0


@st.composite
def histories(draw):
    """Successive runs.

    Each run is killed while Kafka has not acknowledged all that the run sent.
    """
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
            for partition in partitions:
                partition.acked += draw(st.integers(0, len(partition.sent) - partition.acked))
            waiting = [
                partition.sent[partition.acked].offset
                for partition in partitions
                if partition.acked < len(partition.sent)
            ]
            acked = draw(st.sampled_from([None, min(waiting, default=offset)]))
            now += draw(st.sampled_from(STEPS))
            draw(st.sampled_from(partitions)).sent.append(
                OutputRecord(f"entry/{number}", P, offset, now, acked)
            )
        for partition in partitions:  # a first part of the unacknowledged records arrives
            output += partition.sent[: draw(st.integers(partition.acked, len(partition.sent)))]
    return checks


@given(histories())
def test_everything_before_the_start_was_put_out(checks):
    put_out: set[int] = set()
    for begin, offsets in checks:
        put_out |= offsets
        assert set(range(begin)) <= put_out


def test_gapless_output_is_not_repeated_up_to_the_end_of_the_input():
    tail = [OutputRecord("entry/1", P, offset, 0) for offset in (3, 4, 5, 7)]
    assert output_without_gap({P: 3, "raw/1": 9}, {P: END, "raw/1": END}, tail) == {P: 6, "raw/1": 9}
    assert output_without_gap({P: 4}, {P: 5}, tail) == {P: 5}


def test_a_run_continues_after_the_acknowledged_output():
    tail = [
        OutputRecord("entry/1", P, offset, 0, offset - 20 if offset % 16 == 0 else None)
        for offset in range(100, 500)
    ]
    assert start({P: 0}, {P: END}, [{P: 0}], tail) == {P: 476}


def test_records_of_an_older_version_are_no_evidence():
    tail = [OutputRecord("entry/1", P, offset, offset * 1_000) for offset in range(500)]
    assert start({P: 0}, {P: END}, [{P: 70}], tail) == {P: 70}


def test_a_partition_without_output_starts_where_the_last_run_started():
    assert start(
        {P: 0, "raw/1": 0}, {P: END, "raw/1": END}, [{P: 70, "raw/1": 40}, {P: 80, "raw/1": 90}], []
    ) == {P: 80, "raw/1": 90}


def test_the_very_first_run_starts_with_the_oldest_record():
    assert start({P: 17}, {P: END}, [], []) == {P: 17}


def test_acknowledged_positions_are_found_for_each_partition():
    tail = [
        OutputRecord("entry/1", P, 105, 0, 100),
        OutputRecord("entry/1.1", P, 101, 0, 90),
        OutputRecord("entry/1", "raw/1", 7, 0),
    ]
    assert acknowledged(tail) == {P: 100}


def test_missing_records_stop_the_start_with_an_error():
    with pytest.raises(RecordsGoneError, match=r"raw/0: offsets 5 to 9 were never processed.*retention"):
        start({P: 10}, {P: 20}, [{P: 5}], [])


def test_an_input_that_ends_before_the_read_position_is_refused():
    tail = [OutputRecord("entry/1", P, 40, 0), OutputRecord("entry/1", P, 50, 0, 41)]
    read_up_to = known_output([{P: 7, "raw/1": 9}], tail)
    assert read_up_to == {P: 41, "raw/1": 9}
    refuse_shorter(read_up_to, {P: 41, "raw/1": 12, "raw/2": 0}, "")
    with pytest.raises(RecordsGoneError, match=r"raw/0 ends at 40, and was read up to 41: .*; call somebody"):
        refuse_shorter(read_up_to, {P: 40, "raw/1": 12}, "call somebody")
