"""How much of its output a run reads before it begins: as much as tells where, and no more for a partition that is quiet."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from ops.model.tier import Kind
from pipeline.declare import Stream, Tier
from pipeline.driver.positions import SETTLED_MS, PutOut, start
from pipeline.driver.streams import Bounds, Seen
from pipeline.driver.tail import Tail

BUSY, OTHER = "raw/0", "raw/1"
NOW = 10_000_000


class Output:
    """Holds what a tier has put out, a record each 4 ms, and counts how far back it is read."""

    def __init__(self, records: list[PutOut]) -> None:
        self.records = sorted(records, key=lambda record: record.at)
        self.back = 0

    def last(self, _outputs: object, _ends: object, before: int) -> list[Seen]:
        return [Seen(record, None) for record in self.records[-before:]]

    def since(self, _outputs: object, _ends: object, moment: int) -> Iterator[Seen]:
        self.back = max(self.back, NOW - moment)
        return (Seen(record, None) for record in self.records if record.at >= moment)


def tail(output: Output) -> Tail:
    tier = Tier("entry", Kind.ENTRY, (Stream("raw"),), lambda raw: raw, (Stream("hits", "n int"),))
    return Tail(tier, cast("Any", output), one_for_one=True)


def busy(seconds: int = 400) -> list[PutOut]:
    return [PutOut("entry/1", BUSY, number, NOW - 4 * (250 * seconds - number)) for number in range(250 * seconds)]


@pytest.mark.parametrize("begun_at", [100, 60])
def test_a_quiet_partition_is_not_looked_for(begun_at: int) -> None:
    """Either all of it was out when the tier began, or little came since."""
    output = Output(busy())
    inputs = Bounds({BUSY: 0, OTHER: 0}, {BUSY: 100_000, OTHER: 100})
    started = [{BUSY: 0, OTHER: begun_at}]
    found = tail(output).telling({}, inputs, started)
    assert output.back < 2 * SETTLED_MS
    assert start(inputs.oldest, inputs.ends, started, found) == {BUSY: 97_499, OTHER: begun_at}


def test_one_of_which_much_would_be_put_out_again_is() -> None:
    fell_quiet = [PutOut("entry/1", OTHER, number, NOW - 100_000 + number) for number in range(20_000)]
    output = Output([*busy(), *fell_quiet])
    inputs = Bounds({BUSY: 0, OTHER: 0}, {BUSY: 100_000, OTHER: 20_000})
    found = tail(output).telling({}, inputs, [{BUSY: 0, OTHER: 0}])
    assert output.back > 100_000
    assert start(inputs.oldest, inputs.ends, [], found)[OTHER] == 20_000 - SETTLED_MS - 1


def test_one_whose_unread_records_seem_to_be_gone_is() -> None:
    fell_quiet = [PutOut("entry/1", OTHER, number, NOW - 100_000 + 20 * number) for number in range(900)]
    output = Output([*busy(), *fell_quiet])
    inputs = Bounds({BUSY: 0, OTHER: 300}, {BUSY: 100_000, OTHER: 900})
    found = tail(output).telling({}, inputs, [{BUSY: 0, OTHER: 0}])
    assert start(inputs.oldest, inputs.ends, [{BUSY: 0, OTHER: 0}], found)[OTHER] == 399
