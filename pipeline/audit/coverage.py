"""What of a tier's input has come out of it. Pure: records in, verdicts out.

An offset is *judged* once a run of the tier claims that it is safely out: the run has put out a later one, and after that something
`SETTLED_MS` later. It is the claim from which the tier's next run computes its start (`pipeline.driver.positions`), held against what
is really there. What is judged and has not come out is lost.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.driver.positions import SETTLED_MS, PutOut

FORGET_MS = 60_000
"""A run that has put out nothing for so long makes no new claims."""


@dataclass
class Coverage:
    """One partition of a tier's input."""

    judged: int
    """Every offset before this one has come out, or was told as lost."""
    ahead: set[int] = field(default_factory=set)
    """Later offsets that have come out."""
    once: int = 0
    """How many offsets have come out."""
    again: int = 0
    """How many records came out of an offset that had one already: replays, or one record that was made several."""
    unseen: int = 0
    """How many offsets were passed over, for what came out of them was gone before anybody looked."""

    def begin(self, offset: int) -> None:
        """Judge nothing before an offset; what was found stays."""
        self.judged, self.ahead = offset, set()

    def pass_over(self, offset: int) -> None:
        """Judge nothing from here to an offset: what came out in between can no longer be read."""
        self.unseen += max(0, offset - self.judged) - sum(self.judged <= each < offset for each in self.ahead)
        self.begin(offset)

    def add(self, offset: int) -> None:
        """Note a record that was made of an offset."""
        if offset < self.judged or offset in self.ahead:
            self.again += 1
            return
        self.once += 1
        self.ahead.add(offset)
        self._close_up()

    def leave(self, offsets: set[int]) -> None:
        """Wait no longer for offsets that hold no record."""
        self.ahead |= offsets
        self._close_up()

    def judge(self, safe: int) -> list[int]:
        """Return what has not come out up to offset `safe`: it is lost, and told once."""
        missing = [offset for offset in range(self.judged, safe + 1) if offset not in self.ahead]
        self.skip(safe)
        return missing

    def skip(self, safe: int) -> None:
        """Go on after offset `safe`, and call nothing before it lost."""
        if safe >= self.judged:
            self.judged = safe + 1
            self.ahead = {offset for offset in self.ahead if offset > safe}
            self._close_up()

    def _close_up(self) -> None:
        while self.judged in self.ahead:
            self.ahead.remove(self.judged)
            self.judged += 1


class Claims:
    """What the runs of a tier claim to have put out, from what they have put out."""

    def __init__(self) -> None:
        """Know of no run."""
        self._recent: dict[tuple[str, str], deque[tuple[int, int]]] = {}
        self._last: dict[tuple[str, str], int] = {}

    def add(self, record: PutOut) -> None:
        """Note a record; of one run and output partition they come in order, of several partitions they may not."""
        key = (record.by, record.partition)
        self._recent.setdefault(key, deque()).append((record.at, record.offset))
        self._last[key] = max(record.at, self._last.get(key, record.at))

    def settled(self) -> dict[str, int]:
        """Return, for each input partition, the last offset that is claimed to be out together with all before it; each is told once."""
        safe: dict[str, int] = {}
        newest = max(self._last.values(), default=0)
        seen: dict[str, int] = {}
        for (run, _), last in self._last.items():
            seen[run] = max(last, seen.get(run, last))
        for key, last in list(self._last.items()):
            open_still: deque[tuple[int, int]] = deque()
            for at, offset in self._recent[key]:
                if at < last - SETTLED_MS:
                    safe[key[1]] = max(offset, safe.get(key[1], offset))
                else:
                    open_still.append((at, offset))
            self._recent[key] = open_still
            if seen[key[0]] < newest - FORGET_MS:
                del self._recent[key], self._last[key]
        return safe


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Write offsets as ranges, first and last, in order."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found
