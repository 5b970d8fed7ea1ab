"""Cores of their own: processors that no other unit runs on, for every unit with a whole `quantum.cpu`, where the site file says so.

`core_allocation` decides which processors. This module writes them into the unit's group of the controller cpuset, and nowhere else: the
setting outlives the agent, as the unit does. With version 2 the group is the one that the unit has anyway, with version 1 one more.
An error here keeps no agent and no unit from starting; it is logged.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import structlog

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_group_trees import CPU, V1, Trees, cpuset_tree, find_trees
from sluice_ops.agent.limits.control_groups import Containers, ContainersWrapper, ControlGroups
from sluice_ops.agent.limits.core_allocation import divide
from sluice_ops.model.assignment import HostFacts, Unit
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Cores

log = structlog.get_logger()

CONTROLLER = "cpuset"
CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
NOT_ASKED = "shared by quantum.cpu: the site file gives this host no `cores: own`"
MOVES = 3
"""So often what is in a group is moved: it may start more meanwhile."""


class Cpusets:
    """One host's part of the controller cpuset."""

    def __init__(self, tree: Path, groups: ControlGroups, folder: HostFolder) -> None:
        """Find the units that are there, in the order in which they were started."""
        self._host, self._levels = tree / groups.path, (tree, tree / groups.path.parent, tree / groups.path)
        self._groups, self._folder = groups, folder
        self._apart = groups.version is V1
        """Whether these are groups of their own, which have to be made, joined and removed."""
        records = [
            record for unit in folder.units() if groups.has(unit.id) and (record := unit.record()) is not None
        ]
        records.sort(key=lambda record: record.started_at)
        self._quanta = {record.unit.id: record.unit.quantum.cpu for record in records}
        self._crowded: tuple[UnitId, ...] = ()

    @property
    def there(self) -> bool:
        """Whether an agent of this host has divided the processors, since the machine has started."""
        return bool(_read(self._host / CPUS))

    @property
    def said(self) -> str:
        """Say how it is."""
        if not self._crowded:
            return "cores of their own"
        return (
            f"cores of their own, but for {', '.join(self._crowded)}: {len(_usable())} processors are too few"
        )

    def other(self, top: Path | None) -> Path | None:
        """Return a group by which another host divides the processors, in the whole machine's tree."""
        groups = (
            file.parent for file in (top or self._levels[0]).glob(f"**/sluice-*/*/{CPUS}") if _read(file)
        )
        return next((group for group in groups if self._host not in (group, *group.parents)), None)

    def open(self) -> None:
        """Make the host's group."""
        self._host.mkdir(parents=True, exist_ok=True)
        if self._apart:
            for above, level in pairwise(self._levels):
                for name in (MEMS, CPUS):  # nothing can join before both are set, here and above
                    (level / name).write_text((above / name).read_text())
        else:
            for level in self._levels:
                (level / "cgroup.subtree_control").write_text("+cpuset")
            (self._host / CPUS).write_text(_written(_usable()))

    def adopt_running_units(self) -> None:
        """Give what runs already its processors."""
        for unit in self._quanta:
            self._make(unit)
        self._divide()
        for unit in MOVES * tuple(self._quanta):
            session = self._folder.unit(unit).session()
            for procs in self.joins(unit):
                _move(self._groups.processes(unit, session.pid if session else None), procs)

    def admit(self, unit: Unit) -> None:
        """Give a unit its processors."""
        self._make(unit.id)
        self._quanta[unit.id] = unit.quantum.cpu
        self._divide()

    def joins(self, unit: UnitId) -> tuple[Path, ...]:
        """Return the files that a process writes its pid to, to run on the unit's processors; none while it has none."""
        group = self._host / unit
        return (
            (group / "cgroup.procs",) if self._apart and _read(group / CPUS) and _read(group / MEMS) else ()
        )

    def remove(self, unit: UnitId) -> None:
        """Give a unit's processors to the others."""
        if (self._host / unit).exists():
            (self._host / unit).rmdir()
        if self._quanta.pop(unit, None) is not None:
            self._divide()

    def close(self) -> None:
        """Remove the host's group, once it is empty."""
        for group in (self._host, self._host.parent):
            with suppress(OSError):
                group.rmdir()

    def withdraw(self) -> None:
        """Let all units run on all processors again."""
        for group in self._host.glob("*/"):
            if self._apart:
                for _ in range(MOVES):
                    _move(
                        map(int, (group / "cgroup.procs").read_text().split()),
                        _own_group(self._levels[0]) / "cgroup.procs",
                    )
                group.rmdir()
            else:
                (group / CPUS).write_text("\n")
        if self._apart:
            self.close()
        else:
            (self._host / CPUS).write_text("\n")

    def _divide(self) -> None:
        """Write what `core_allocation` decides; an error for one unit keeps no other unit from its processors."""
        has = {unit: _read(self._host / unit / CPUS) for unit in self._quanta}
        division = divide(_usable(), has, self._quanta)
        failed = None
        for unit in sorted(
            self._quanta, key=division.own.__contains__
        ):  # who shares makes room first: an end in between is understood
            if (numbers := division.of(unit)) != has[unit]:
                try:
                    (self._host / unit / CPUS).write_text(_written(numbers))
                except OSError as error:
                    failed = error
        if division.crowded != self._crowded:
            self._crowded = division.crowded
            log.warning("how the processors are divided has changed", cores=self.said)
        if failed is not None:
            raise failed

    def _make(self, unit: UnitId) -> None:
        if self._apart:
            (self._host / unit).mkdir(exist_ok=True)
            (self._host / unit / MEMS).write_text((self._host / MEMS).read_text())


class ContainersWithCores(ContainersWrapper):
    """Containers whose units have cores of their own."""

    def __init__(self, containers: Containers, cpusets: Cpusets) -> None:
        """Add the processors to what containers divide."""
        super().__init__(containers)
        self._cpusets = cpusets
        self._said: str | None = None

    @property
    def limits(self) -> str:
        """By what units are limited."""
        return f"{super().limits}; {self._cpusets.said}"

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's container, and give it its processors."""
        joins = super().admit(unit)
        self._done(lambda: self._cpusets.admit(unit))
        return (*joins, *self._cpusets.joins(unit.id))

    def remove(self, unit: UnitId) -> None:
        """Remove an empty container, and give its processors to the others."""
        super().remove(unit)
        self._done(lambda: self._cpusets.remove(unit))

    def close(self) -> None:
        """Remove the host's own container, once it is empty."""
        super().close()
        self._cpusets.close()

    def adopt_running_units(self) -> None:
        """Give what runs already its processors."""
        self._done(self._cpusets.adopt_running_units)

    def _done(self, step: Callable[[], None]) -> None:
        """Do it; what keeps it from being done is said once."""
        try:
            step()
        except OSError as error:
            if str(error) != self._said:
                log.warning("units do not have the processors that they should", error=str(error))
            self._said = str(error)
        else:
            self._said = None


def open_cores(
    home: Path, facts: HostFacts, cores: Cores, containers: Containers, mounts: Path = Path("/proc/mounts")
) -> tuple[Containers, str]:
    """Give units cores of their own beside what containers limit, if the site file says so; say how it is."""
    cpusets, found = _find(home, facts.name, containers, mounts), find_trees(mounts)
    try:
        if cores == "shared":
            if cpusets is not None and cpusets.there:
                cpusets.withdraw()
            return containers, NOT_ASKED
        if cpusets is None or found is None:
            return containers, _shared(
                missing_requirement(
                    containers.trees if isinstance(containers, ControlGroups) else None, mounts
                )
            )
        if (other := cpusets.other(cpuset_tree(found, mounts))) is not None:
            return containers, _shared(
                f"{other.name} of {other.parent.name} divides the processors of this machine already; if it is gone, "
                f"remove the folders in {other}, and it, with rmdir"
            )
        cpusets.open()
    except OSError as error:
        return containers, _shared(str(error))
    made = ContainersWithCores(containers, cpusets)
    made.adopt_running_units()
    if (few := processor_shortage(facts.cpu)) is None:
        return made, cpusets.said
    log.warning("not every unit can have cores of its own", why=few)
    return made, f"{cpusets.said}; {few}"


def find_cores(
    home: Path, host: str, containers: Containers, mounts: Path = Path("/proc/mounts")
) -> Containers:
    """Return a host's containers with the processors that its agent divides, for whoever ends its units."""
    cpusets = _find(home, host, containers, mounts)
    return ContainersWithCores(containers, cpusets) if cpusets is not None and cpusets.there else containers


def missing_requirement(found: Trees | None, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Say what is missing for cores of their own, and what to do; None where all is there. Changes nothing."""
    if found is None:
        return "there are no control groups that units are limited by"
    if found.version is V1 and os.geteuid() != 0:
        return f"user {os.geteuid()} may not: have the agent run as root (`systemctl edit sluice-agent@…`, User=root)"
    if cpuset_tree(found, mounts) is not None:
        return None
    if found.version is V1:
        where = found.at[CPU].with_name(CONTROLLER)
        return f"the controller {CONTROLLER} is not mounted: mkdir {where}; mount -t cgroup -o {CONTROLLER} {CONTROLLER} {where}"
    return (
        f"{found.at[CPU]}/cgroup.controllers has no {CONTROLLER}: have it handed down (Delegate=yes in the agent's unit file, "
        f"or {CONTROLLER} among what that lists), on a kernel with CONFIG_CPUSETS"
    )


def processor_shortage(cpu: float) -> str | None:
    """Say so where a host gives more cores than it has processors."""
    if cpu <= len(_usable()):
        return None
    return f"capacity.cpu is {cpu:g}, and the agent may use {len(_usable())} processors: lower it, or those that come last share"


def _find(home: Path, host: str, containers: Containers, mounts: Path) -> Cpusets | None:
    if not isinstance(containers, ControlGroups):
        return None
    tree = cpuset_tree(containers.trees, mounts)
    return None if tree is None else Cpusets(tree, containers, HostFolder(home, host))


def _shared(why: str | None) -> str:
    log.warning("units have no cores of their own", why=why)
    return f"shared by quantum.cpu: {why}"


def _usable() -> frozenset[int]:
    """Return the processors that the agent may use, and so its units."""
    return frozenset(os.sched_getaffinity(0))


def _own_group(tree: Path, membership: Path = Path("/proc/self/cgroup")) -> Path:
    """Return the agent's own group, in which units are that have none (version 1)."""
    lines = (line.split(":", 2) for line in membership.read_text().splitlines())
    own = next((path for _, controllers, path in lines if CONTROLLER in controllers.split(",")), "/")
    return group if (group := tree / own.lstrip("/")).is_dir() else tree


def _move(pids: Iterable[int], procs: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            procs.write_text(str(pid))


def _read(file: Path) -> frozenset[int]:
    """Return the numbers of a list such as `0-2,7`; none where there is no such file."""
    try:
        parts = [part.partition("-") for part in file.read_text().strip().split(",") if part]
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        number for first, _, last in parts for number in range(int(first), int(last or first) + 1)
    )


def _written(numbers: frozenset[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
