"""What the files of each unit take of the host's disk: who has more than its quantum is ended. Called by the agent's loop."""

import time
from collections.abc import Iterable

from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit, KillForFault
from sluice_ops.model.ids import UnitId

MEBIBYTE = 1 << 20
LOOK_SECONDS = 30.0
"""Between two looks: they ask the kernel for every file of every unit."""


class Disks:
    """What was seen at the last look."""

    def __init__(self, process_control: ProcessControl) -> None:
        """Look at the files of the units that these find."""
        self._process_control = process_control
        self._looked_at: float | None = None
        self.taken: dict[UnitId, int] = {}
        """Unit: bytes."""

    def look(self, found: Iterable[FoundUnit]) -> bool:
        """Measure, unless that was done just now, and end who has more than its quantum: its files go when it is started again.

        Return whether it has ended any.
        """
        if self._looked_at is not None and time.monotonic() - self._looked_at < LOOK_SECONDS:
            return False
        there = {found_unit.unit.id: found_unit for found_unit in found}
        self.taken = {name: self._process_control.taken(name) for name in there}
        self._looked_at = time.monotonic()
        ended = False
        for name, found_unit in there.items():
            limit, over = found_unit.unit.quantum.disk, self.taken[name]
            if (
                found_unit.alive
                and found_unit.stopping_at is None
                and limit is not None
                and over > limit * MEBIBYTE
            ):
                why = f"its files took {-(-over // MEBIBYTE)} MiB of the disk: quantum.disk is {limit}m"
                self._process_control.do(KillForFault(name, why))
                ended = True
        return ended
