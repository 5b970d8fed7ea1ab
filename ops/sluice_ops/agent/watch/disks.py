"""Measure the disk space of each unit, and kill units that exceed `quantum.disk`.

The agent's loop calls this module.
"""

import time
from collections.abc import Iterable

from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit, KillForFault
from sluice_ops.model.ids import UnitId

MEBIBYTE = 1 << 20
LOOK_SECONDS = 30.0
"""The time between two measurements, each of which asks the kernel for every file of every unit."""


class Disks:
    """The disk space of each unit at the last measurement."""

    def __init__(self, process_control: ProcessControl) -> None:
        self._process_control = process_control
        self._measured_at: float | None = None
        self.used_bytes: dict[UnitId, int] = {}
        """Unit: bytes."""

    def measure(self, units: Iterable[FoundUnit]) -> bool:
        """Measure all units, at most every 30 s, and kill units that exceed their quantum.

        A killed unit's files are removed when the unit starts again. Return whether a unit was
        killed.
        """
        if self._measured_at is not None and time.monotonic() - self._measured_at < LOOK_SECONDS:
            return False
        units_by_id = {found_unit.unit.id: found_unit for found_unit in units}
        self.used_bytes = {unit: self._process_control.disk_bytes(unit) for unit in units_by_id}
        self._measured_at = time.monotonic()
        killed = False
        for unit, found_unit in units_by_id.items():
            limit, used = found_unit.unit.quantum.disk, self.used_bytes[unit]
            if (
                found_unit.alive
                and found_unit.stopping_at is None
                and limit is not None
                and used > limit * MEBIBYTE
            ):
                reason = f"its files took {-(-used // MEBIBYTE)} MiB of the disk: quantum.disk is {limit}m"
                self._process_control.do(KillForFault(unit, reason))
                killed = True
        return killed
