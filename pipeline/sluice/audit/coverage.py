"""The input offsets of a tier that have come out of it. Pure.

The audit judges an offset when a run claims that the offset is out. A record carries this claim:
Kafka has acknowledged everything before a later offset. The tier's next run computes its start from
the same claim (`sluice.kafka.positions`). The audit compares the claim with the records that exist:
an offset that is judged and has no record is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Coverage:
    """The coverage of one input partition of a tier."""

    judged: int
    """Every offset before this one has come out, or is reported as lost."""
    ahead: set[int] = field(default_factory=set)
    """Later offsets that have come out."""
    once: int = 0
    """The number of offsets that have come out."""
    again: int = 0
    """The number of further records of an offset: replays, or several records made of one."""
    unseen: int = 0
    """The number of offsets that are not judged, because their output was deleted unread."""

    def begin(self, offset: int) -> None:
        """Continue at an offset, and judge nothing before it; the counts stay."""
        self.judged, self.ahead = offset, set()

    def pass_over(self, offset: int) -> None:
        """Continue at an offset, and count the offsets before it whose output cannot be read."""
        ahead = sum(self.judged <= later < offset for later in self.ahead)
        self.unseen += max(0, offset - self.judged) - ahead
        self.begin(offset)

    def add(self, offset: int) -> None:
        """Count an output record of an offset."""
        if offset < self.judged or offset in self.ahead:
            self.again += 1
            return
        self.once += 1
        self.ahead.add(offset)
        self._close_up()

    def add_empty(self, offsets: set[int]) -> None:
        """Treat offsets without a record as come out."""
        self.ahead |= offsets
        self._close_up()

    def judge(self, safe: int) -> list[int]:
        """Return the lost offsets up to and including `safe`, each only once."""
        missing = [offset for offset in range(self.judged, safe + 1) if offset not in self.ahead]
        self.skip(safe)
        return missing

    def skip(self, safe: int) -> None:
        """Continue after offset `safe` without judging the offsets before."""
        if safe >= self.judged:
            self.judged = safe + 1
            self.ahead = {offset for offset in self.ahead if offset > safe}
            self._close_up()

    def _close_up(self) -> None:
        while self.judged in self.ahead:
            self.ahead.remove(self.judged)
            self.judged += 1


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return offsets as sorted ranges (first, last)."""
    joined: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if joined and joined[-1][1] == offset - 1:
            joined[-1] = (joined[-1][0], offset)
        else:
            joined.append((offset, offset))
    return joined
