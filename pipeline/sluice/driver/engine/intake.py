"""How much a gate that was held back may let in: measured batches, until it has caught up and flows
again (decision record 0019). Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ROUND_SECONDS = 4.0
"""Whoever is behind is heard of within this time (a look every two seconds, a pass of the
controller): so long the first batch is all.
"""
SILENT_SECONDS = 60.0
"""After so long without anybody who decides, a tier that is held back lets a little in, and again
each time that it has passed.
"""
LITTLE = 0.1
"""Of a batch."""


@dataclass
class Intake:
    """Rounds of some seconds: one batch in the first, one more in each that follows, until it is
    held back again.
    """

    most: int
    """The tier's largest batch. Unit: records."""
    _rounds: int = 0
    _left: int = 0
    _begun: float | None = None

    def allowance(self, now: float, silent: float, *, held: bool) -> int:
        """Return how many records may be taken now; `silent` is for how long nobody has been there
        to decide.
        """
        since = None if self._begun is None else now - self._begun
        if held:
            self._rounds = self._left = 0
            due = silent >= SILENT_SECONDS and (since is None or since >= SILENT_SECONDS)
            return max(1, int(self.most * LITTLE)) if due else 0
        if self._rounds == 0 or since is None or since >= ROUND_SECONDS:
            self._rounds += 1
            self._left, self._begun = self._rounds * self.most, now
        return min(self.most, self._left)

    def took(self, now: float, count: int) -> None:
        """Take note of so many records that were taken."""
        if self._rounds == 0:
            self._begun = now
        self._left = max(0, self._left - count)


def portion(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """Return where a batch of at most so many records ends: from each partition as large a part as
    it has of all that waits.
    """
    waits = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    total = sum(waits.values())
    if total <= most:
        return {partition: begins[partition] + left for partition, left in waits.items()}
    cut = {partition: begins[partition] + left * most // total for partition, left in waits.items()}
    rest = most - sum(cut[partition] - begins[partition] for partition in cut)
    for partition, left in sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:rest]:
        cut[partition] += 1 if cut[partition] < begins[partition] + left else 0
    return cut
