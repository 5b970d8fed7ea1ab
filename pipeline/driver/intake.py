"""How much a gate that was held back may let in: measured batches, until it has caught up and flows again (decision record 0019). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

SILENT_SECONDS = 60.0
"""After so long without anybody who decides, a tier that is held back lets a little in, and again each time that it has passed."""
LITTLE = 0.1
"""Of a usual batch."""


@dataclass
class Intake:
    """When the next batch may be taken, and of how many records."""

    most: int
    """The tier's largest batch. Unit: records."""
    interval: float
    """Between the begins of two batches. Unit: seconds."""
    _taken: float | None = None

    def allowance(self, now: float, silent: float, *, held: bool) -> int:
        """Return how many records may be taken now; `silent` is for how long nobody has been there to decide."""
        wait = SILENT_SECONDS if held else self.interval
        if held and silent < SILENT_SECONDS:
            return 0
        if self._taken is not None and now - self._taken < wait:
            return 0
        return max(1, int(self.most * LITTLE)) if held else self.most

    def took(self, now: float) -> None:
        """Take note of a batch that has begun."""
        self._taken = now


def portion(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """Return where a batch of at most so many records ends: from each partition as large a part as it has of all that waits."""
    waits = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    total = sum(waits.values())
    if total <= most:
        return {partition: begins[partition] + left for partition, left in waits.items()}
    cut = {partition: begins[partition] + left * most // total for partition, left in waits.items()}
    rest = most - sum(cut[partition] - begins[partition] for partition in cut)
    for partition, left in sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:rest]:
        cut[partition] += 1 if cut[partition] < begins[partition] + left else 0
    return cut
