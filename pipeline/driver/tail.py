"""The end of a tier's output, read back: what tells a run where to begin, and where the tier is."""

from collections.abc import Mapping, Sequence

from pipeline.declare import Tier
from pipeline.driver.positions import SETTLED_MS, PutOut, known, settled
from pipeline.driver.streams import Bounds, Streams

A_FEW = 200
"""Records of each output partition that tell where a busy tier is."""
APART_MS = 1_000
"""So far apart the last records of two input partitions may be for that."""
LOOK_BACK_MS = (2 * SETTLED_MS, 30 * SETTLED_MS)
"""How far back the output is read when a few records do not tell enough of every partition, and when that does not either."""
SOONER_AGAIN = 1_000
"""So few records of a partition are put out again sooner than more of the output is read for them: it is quiet, or was just begun."""


class Tail:
    """What runs of one tier have put out last; others put records into its streams again, or into the same quarantine."""

    def __init__(self, tier: Tier, streams: Streams, *, one_for_one: bool = False) -> None:
        """Prepare; nothing is read yet."""
        self._tier, self._streams, self._outputs = tier.name, streams, tier.written
        self._one_for_one = one_for_one

    def last(self, ends: dict[str, int]) -> list[PutOut]:
        """Return the last records before the `ends` of its output."""
        found = (seen.out for seen in self._streams.last(self._outputs, ends, before=A_FEW))
        return [out for out in found if out.tier == self._tier]

    def telling(self, ends: dict[str, int], inputs: Bounds, started: Sequence[Mapping[str, int]]) -> list[PutOut]:
        """Return as many as tell, with where runs have `started`, from where each partition of the inputs has to be read."""
        last = self.last(ends)
        if not last:
            return []
        newest = max(out.at for out in last)
        if self._one_for_one:
            found = last + self._since(newest - SETTLED_MS - 2 * APART_MS, ends)
        else:
            # where much is put out, a few of the last records and a few from before what may not be settled tell of every partition
            found = last + self.last(self._streams.at(self._outputs, newest - SETTLED_MS - APART_MS, ends))
        for back in LOOK_BACK_MS:
            done, told = known(started, found), settled(found)
            if all(name in told or done.get(name, 0) >= max(inputs.oldest[name], end - SOONER_AGAIN) for name, end in inputs.ends.items()):
                break
            found = last + self._since(newest - back, ends)
        return found

    def _since(self, moment: int, ends: dict[str, int]) -> list[PutOut]:
        found = (seen.out for seen in self._streams.since(self._outputs, ends, moment))
        return [out for out in found if out.tier == self._tier]
