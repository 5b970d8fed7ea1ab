"""A run reads as much of its output before its start as it needs to find its position, and reads no
further for a quiet partition.
"""

from typing import Any, cast

import pytest

from sluice.api.declarations import Stream, Tier
from sluice.kafka.output_tail import FEW_RECORDS, OutputTail
from sluice.kafka.positions import OutputRecord, start
from sluice.kafka.reader import Bounds, Seen
from sluice_ops.model.tier import Kind

BUSY, OTHER = "raw/0", "raw/1"


class Output:
    """The output of a tier, which records how far back it was read."""

    def __init__(self, records: list[OutputRecord]) -> None:
        self.records = records
        self.back = 0

    def last(self, _outputs: object, _ends: object, before: int) -> list[Seen]:
        self.back = max(self.back, before)
        return [Seen(record, None) for record in self.records[-before:]]


def tail(output: Output) -> OutputTail:
    tier = Tier("entry", Kind.ENTRY, (Stream("raw"),), lambda raw: raw, (Stream("hits", "n int"),))
    return OutputTail(tier, cast("Any", output))


def output_records(partition: str, count: int) -> list[OutputRecord]:
    """Return the output of a run with five unacknowledged records.

    Each sixteenth record carries the acknowledged position.
    """
    return [
        OutputRecord("entry/1", partition, number, 0, number - 5 if number % 16 == 0 else None)
        for number in range(count)
    ]


@pytest.mark.parametrize("begun_at", [100, 60])
def test_a_quiet_partition_causes_no_further_reading(begun_at: int) -> None:
    """All its records were out when the tier started, or few arrived since."""
    output = Output(output_records(BUSY, 100_000))
    inputs = Bounds({BUSY: 0, OTHER: 0}, {BUSY: 100_000, OTHER: 100})
    started = [{BUSY: 0, OTHER: begun_at}]
    records = tail(output).enough_to_start({}, inputs, started)
    assert output.back == FEW_RECORDS
    assert start(inputs.oldest, inputs.ends, started, records) == {BUSY: 99_979, OTHER: begun_at}


def test_a_partition_with_much_to_repeat_causes_further_reading() -> None:
    output = Output([*output_records(OTHER, 20_000), *output_records(BUSY, 15_000)])
    inputs = Bounds({BUSY: 0, OTHER: 0}, {BUSY: 15_000, OTHER: 20_000})
    records = tail(output).enough_to_start({}, inputs, [{BUSY: 0, OTHER: 0}])
    assert output.back > FEW_RECORDS
    assert start(inputs.oldest, inputs.ends, [], records)[OTHER] == 19_979


def test_a_partition_with_expired_input_causes_further_reading() -> None:
    output = Output([*output_records(OTHER, 900), *output_records(BUSY, 15_000)])
    inputs = Bounds({BUSY: 0, OTHER: 300}, {BUSY: 15_000, OTHER: 900})
    records = tail(output).enough_to_start({}, inputs, [{BUSY: 0, OTHER: 0}])
    assert start(inputs.oldest, inputs.ends, [{BUSY: 0, OTHER: 0}], records)[OTHER] == 891


def test_records_of_a_replay_do_not_count_as_output_of_the_tier() -> None:
    output = Output([OutputRecord("entry.replay-1/1", BUSY, 50, 0, 50)])
    assert tail(output).enough_to_start({}, Bounds({BUSY: 0}, {BUSY: 100}), []) == []
