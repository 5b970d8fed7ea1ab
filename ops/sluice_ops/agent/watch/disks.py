"""What the files of each unit take of the host's disk: who has more than its quantum is ended. Called by the agent's loop."""

import time
from collections.abc import Iterable

from sluice_ops.agent.units.process_control import Hands
from sluice_ops.agent.units.reconcile import EndFor, Found
from sluice_ops.model.ids import UnitId

MEBIBYTE = 1 << 20
LOOK_SECONDS = 30.0
"""Between two looks: they ask the kernel for every file of every unit."""


class Disks:
    """What was seen at the last look."""

    def __init__(self, hands: Hands) -> None:
        """Look at the files of the units that these find."""
        self._hands = hands
        self._looked_at: float | None = None
        self.taken: dict[UnitId, int] = {}
        """Unit: bytes."""

    def look(self, found: Iterable[Found]) -> bool:
        """Measure, unless that was done just now, and end who has more than its quantum: its files go when it is started again.

        Return whether it has ended any.
        """
        if self._looked_at is not None and time.monotonic() - self._looked_at < LOOK_SECONDS:
            return False
        there = {item.unit.id: item for item in found}
        self.taken = {name: self._hands.taken(name) for name in there}
        self._looked_at = time.monotonic()
        ended = False
        for name, item in there.items():
            limit, over = item.unit.quantum.disk, self.taken[name]
            if item.alive and item.stopping_at is None and limit is not None and over > limit * MEBIBYTE:
                why = f"its files took {-(-over // MEBIBYTE)} MiB of the disk: quantum.disk is {limit}m"
                self._hands.do(EndFor(name, why))
                ended = True
        return ended
