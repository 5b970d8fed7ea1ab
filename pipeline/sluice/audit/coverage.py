"""What of a tier's input has come out of it. Pure: records in, verdicts out.

An offset is *judged* once a run of the tier claims that it is out: a record says that Kafka has acknowledged everything before a later
offset. It is the claim from which the tier's next run computes its start (`sluice.kafka.positions`), held against what is really there.
What is judged and has not come out is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


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


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Write offsets as ranges, first and last, in order."""
    joined: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if joined and joined[-1][1] == offset - 1:
            joined[-1] = (joined[-1][0], offset)
        else:
            joined.append((offset, offset))
    return joined
