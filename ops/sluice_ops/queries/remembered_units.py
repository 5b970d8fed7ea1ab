"""The units that this machine's agents keep on disk, for use while ZooKeeper does not answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sluice_ops.agent.host.store import HostFolder, host_names
from sluice_ops.model.ids import UnitId


class RememberedUnit(NamedTuple):
    """A unit of the last assignment that an agent of this machine received."""

    host: str
    unit: UnitId
    pid: int | None
    """The process id of the unit's main process; None if the unit does not run."""


def remembered_units(home: Path) -> Iterator[RememberedUnit]:
    """Yield the units of all agents that have a folder below `home`."""
    for name in host_names(home):
        folder = HostFolder(home, name)
        for unit in folder.assignment().units:
            main = folder.unit(unit.id).main()
            yield RememberedUnit(name, unit.id, main.pid if main is not None and main.alive else None)
