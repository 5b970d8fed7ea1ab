"""The end of a tier's output, read back: what tells a run where to begin, and where the tier is."""

from collections.abc import Mapping, Sequence

from sluice.api.declarations import Tier
from sluice.kafka.positions import PutOut, acknowledged, known
from sluice.kafka.reader import Bounds, Seen, Streams

A_FEW = 200
"""Records of each output partition that tell where a busy tier is."""
MORE = (2_000, 20_000)
"""So many are read when a few records do not tell enough of every input partition, and when those do not either."""
SOONER_AGAIN = 1_000
"""So few records of a partition are put out again sooner than more of the output is read for them: it is quiet, or was just begun."""


class Tail:
    """What runs of one tier have put out last; others put records into its streams again, or into the same quarantine."""

    def __init__(self, tier: Tier, streams: Streams) -> None:
        """Prepare; nothing is read yet."""
        self._tier, self._streams, self._outputs = tier.name, streams, tier.written

    def last(self, ends: dict[str, int], count: int = A_FEW) -> list[PutOut]:
        """Return the last records of each partition before the `ends` of its output."""
        return [seen.out for seen in self.seen(ends, count)]

    def seen(self, ends: dict[str, int], count: int) -> list[Seen]:
        """Return them with all of their lineage."""
        return [
            seen
            for seen in self._streams.last(self._outputs, ends, before=count)
            if seen.out.tier == self._tier
        ]

    def back_to(self, ends: dict[str, int], places: Mapping[str, int]) -> list[Seen]:
        """Return as many as were made since these offsets of the inputs: in each partition that has any, one from before is among them."""
        count = A_FEW
        while True:
            found, oldest = self.seen(ends, count), dict[tuple[str, str], int]()
            for seen in found:
                made_of = seen.place.rpartition(":")[0], seen.out.partition
                oldest[made_of] = min(seen.out.offset, oldest.get(made_of, seen.out.offset))
            if all(
                ends[output] <= count or offset < places.get(place, offset + 1)
                for (output, place), offset in oldest.items()
            ):
                return found
            count *= 10

    def telling(
        self, ends: dict[str, int], inputs: Bounds, started: Sequence[Mapping[str, int]]
    ) -> list[PutOut]:
        """Return as many as tell, with where runs have `started`, from where each partition of the inputs has to be read."""
        last = self.last(ends)
        for count in MORE:
            done, told = known(started, last), acknowledged(last)
            if all(
                name in told or done.get(name, 0) >= max(inputs.oldest[name], end - SOONER_AGAIN)
                for name, end in inputs.ends.items()
            ):
                break
            last = self.last(ends, count)
        return last
