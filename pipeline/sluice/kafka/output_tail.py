"""The last records of a tier's output: they tell the tier's position and its next start."""

from collections.abc import Mapping, Sequence

from sluice.api.declarations import Tier
from sluice.kafka.positions import OutputRecord, acknowledged, known_output
from sluice.kafka.reader import Bounds, Seen, Streams

FEW_RECORDS = 200
"""Records of each output partition that suffice for a busy tier."""
MORE_COUNTS = (2_000, 20_000)
"""The next numbers of records, if fewer do not tell the position in every input partition."""
MAX_REPEATED = 1_000
"""If at most so many records of an input partition would be repeated, the tier repeats them.

To read more of the output would take longer. Such a partition is quiet, or has just begun.
"""


class OutputTail:
    """The last output records of one tier's runs.

    Other writers also write into these streams: replays, and other tiers into a shared quarantine.
    Their records are left out.
    """

    def __init__(self, tier: Tier, streams: Streams) -> None:
        self._tier, self._streams, self._outputs = tier.name, streams, tier.written

    def last(self, ends: dict[str, int], count: int = FEW_RECORDS) -> list[OutputRecord]:
        """Return the tier's last records of each output partition before `ends`."""
        return [seen.out for seen in self.seen(ends, count)]

    def seen(self, ends: dict[str, int], count: int) -> list[Seen]:
        """Return the same records with their full lineage."""
        return [
            seen
            for seen in self._streams.last(self._outputs, ends, before=count)
            if seen.out.tier == self._tier
        ]

    def back_to(self, ends: dict[str, int], places: Mapping[str, int]) -> list[Seen]:
        """Return the last records, back to before these offsets of the inputs.

        For each output partition and input partition, the result has a record from before the
        offset, unless the output partition has none.
        """
        count = FEW_RECORDS
        while True:
            last_records, oldest = self.seen(ends, count), dict[tuple[str, str], int]()
            for seen in last_records:
                output_and_input = seen.place.rpartition(":")[0], seen.out.partition
                oldest[output_and_input] = min(seen.out.offset, oldest.get(output_and_input, seen.out.offset))
            if all(
                ends[output] <= count or offset < places.get(place, offset + 1)
                for (output, place), offset in oldest.items()
            ):
                return last_records
            count *= 10

    def enough_to_start(
        self, ends: dict[str, int], inputs: Bounds, started: Sequence[Mapping[str, int]]
    ) -> list[OutputRecord]:
        """Return as many last records as tell where to start reading each input partition.

        `started` are the offsets where earlier runs have started; they count, too.
        """
        last = self.last(ends)
        for count in MORE_COUNTS:
            done, acked = known_output(started, last), acknowledged(last)
            if all(
                name in acked or done.get(name, 0) >= max(inputs.oldest[name], end - MAX_REPEATED)
                for name, end in inputs.ends.items()
            ):
                break
            last = self.last(ends, count)
        return last
