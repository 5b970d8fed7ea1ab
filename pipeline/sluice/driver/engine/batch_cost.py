"""The part of a micro-batch's time that does not depend on its records. Pure."""

from collections import deque
from dataclasses import dataclass, field

BATCHES = 300
"""The last batches count."""
COLD_BATCHES = 10
"""The first batches after a start do not count: they take several times as long as later ones."""
DOUBT = 0.05
"""If batches differ by this part in their records, half of the difference in time is believed.

Batches that are all alike do not tell their fixed time.
"""


@dataclass
class BatchCost:
    """Fits a line through the last batches: seconds = fixed + records * seconds of one."""

    _batches: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=BATCHES))
    """Records of each worker, and seconds."""
    _added: int = 0

    def add(self, records: float, seconds: float) -> None:
        """Count one more batch, with so many records for each worker."""
        self._added += 1
        if self._added > COLD_BATCHES:
            self._batches.append((records, seconds))

    @property
    def fixed(self) -> float:
        """The time that a batch of no records would take; 0 if that is not known. Unit: seconds.

        It is never above the shortest of the batches.
        """
        count = len(self._batches)
        records = sum(each for each, _ in self._batches) / max(1, count)
        if not records:
            return 0.0
        seconds = sum(each for _, each in self._batches) / count
        varied = sum((each - records) ** 2 for each, _ in self._batches) / count
        together = sum((each - records) * (time - seconds) for each, time in self._batches) / count
        doubt = (DOUBT * records) ** 2
        of_a_record = (together + doubt * seconds / records) / (varied + doubt)
        shortest = min(time for _, time in self._batches)
        return min(max(0.0, seconds - of_a_record * records), shortest)
