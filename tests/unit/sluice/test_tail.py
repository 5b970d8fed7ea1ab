"""How much of its output a run reads before it begins: as much as tells where, and no more for a partition that is quiet."""

from typing import Any, cast

import pytest

from sluice.api.declarations import Stream, Tier
from sluice.kafka.output_tail import FEW_RECORDS, OutputTail
from sluice.kafka.positions import OutputRecord, start
from sluice.kafka.reader import Bounds, Seen
from sluice_ops.model.tier import Kind

BUSY, OTHER = "raw/0", "raw/1"


class Output:
    """Holds what a tier has put out, and notes how far back it is read."""

    def __init__(self, records: list[OutputRecord]) -> None:
        self.records = records
        self.back = 0

    def last(self, _outputs: object, _ends: object, before: int) -> list[Seen]:
        self.back = max(self.back, before)
        return [Seen(record, None) for record in self.records[-before:]]


def tail(output: Output) -> OutputTail:
    tier = Tier("entry", Kind.ENTRY, (Stream("raw"),), lambda raw: raw, (Stream("hits", "n int"),))
    return OutputTail(tier, cast("Any", output))


def put_out(partition: str, count: int) -> list[OutputRecord]:
    """Return what a run has put out, where what is under way is five records, and one in sixteen tells."""
    return [
        OutputRecord("entry/1", partition, number, 0, number - 5 if number % 16 == 0 else None)
        for number in range(count)
    ]


@pytest.mark.parametrize("begun_at", [100, 60])
def test_a_quiet_partition_is_not_looked_for(begun_at: int) -> None:
    """Either all of it was out when the tier began, or little came since."""
    output = Output(put_out(BUSY, 100_000))
    inputs = Bounds({BUSY: 0, OTHER: 0}, {BUSY: 100_000, OTHER: 100})
    started = [{BUSY: 0, OTHER: begun_at}]
    records = tail(output).enough_to_start({}, inputs, started)
    assert output.back == FEW_RECORDS
    assert start(inputs.oldest, inputs.ends, started, records) == {BUSY: 99_979, OTHER: begun_at}


def test_one_of_which_much_would_be_put_out_again_is() -> None:
    output = Output([*put_out(OTHER, 20_000), *put_out(BUSY, 15_000)])
    inputs = Bounds({BUSY: 0, OTHER: 0}, {BUSY: 15_000, OTHER: 20_000})
    records = tail(output).enough_to_start({}, inputs, [{BUSY: 0, OTHER: 0}])
    assert output.back > FEW_RECORDS
    assert start(inputs.oldest, inputs.ends, [], records)[OTHER] == 19_979


def test_one_whose_unread_records_seem_to_be_gone_is() -> None:
    output = Output([*put_out(OTHER, 900), *put_out(BUSY, 15_000)])
    inputs = Bounds({BUSY: 0, OTHER: 300}, {BUSY: 15_000, OTHER: 900})
    records = tail(output).enough_to_start({}, inputs, [{BUSY: 0, OTHER: 0}])
    assert start(inputs.oldest, inputs.ends, [{BUSY: 0, OTHER: 0}], records)[OTHER] == 891


def test_nothing_is_taken_for_out_that_another_has_put_there() -> None:
    output = Output([OutputRecord("entry.replay-1/1", BUSY, 50, 0, 50)])
    assert tail(output).enough_to_start({}, Bounds({BUSY: 0}, {BUSY: 100}), []) == []
