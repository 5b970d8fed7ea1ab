"""How many records a tier that was held back may let in, until it flows again (decision 19).
Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ROUND_SECONDS = 4.0
"""Length of a round. Within this time the controller hears of a tier that lags (a look every two
seconds, and a pass of the controller). Until then only the first batch is let in."""
SILENT_SECONDS = 60.0
"""Without a controller, a tier that is held back lets a few records in each time this has
passed.
"""
LITTLE = 0.1
"""The size of such a batch, as a part of the tier's largest batch."""


@dataclass
class Intake:
    """Works in rounds: one batch in the first, one more in each that follows, until the tier is
    held back again.
    """

    most: int
    """The tier's largest batch. Unit: records."""
    _rounds: int = 0
    _left: int = 0
    _begun: float | None = None

    def allowance(self, now: float, silent: float, *, held: bool) -> int:
        """Return how many records may be let in now.

        `silent` is how long there has been no controller; `held` whether the tier is held back.
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
        """Note how many records were let in."""
        if self._rounds == 0:
            self._begun = now
        self._left = max(0, self._left - count)


def portion(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """Return where a batch of at most `most` records ends, with a proportional part of each
    partition.
    """
    waits = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    total = sum(waits.values())
    if total <= most:
        return {partition: begins[partition] + count for partition, count in waits.items()}
    until = {partition: begins[partition] + count * most // total for partition, count in waits.items()}
    left_over = most - sum(until[partition] - begins[partition] for partition in until)
    for partition, count in sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:left_over]:
        until[partition] += 1 if until[partition] < begins[partition] + count else 0
    return until
