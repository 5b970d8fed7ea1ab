"""Give each unit with a whole `quantum.cpu` processors for itself, on hosts with `cores: own`.

`core_allocation` chooses the processors. This module writes them only into the unit's cpuset group,
so that the setting outlives the agent, as the unit does. In version 2, this is the unit's only
group; in version 1, it is one more group. An error is logged, and stops no agent and no unit.
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
"""How often the processes of a unit are moved: they may start more processes meanwhile."""


class Cpusets:
    """The cpuset groups of one host."""

    def __init__(self, tree: Path, groups: ControlGroups, folder: HostFolder) -> None:
        """Read the running units, in the order of their starts."""
        self._host, self._levels = tree / groups.path, (tree, tree / groups.path.parent, tree / groups.path)
        self._groups, self._folder = groups, folder
        self._own_groups = groups.version is V1
        """Whether cpusets are extra groups (version 1), which have to be made, joined and
        removed.
        """
        records = [
            record for unit in folder.units() if groups.has(unit.id) and (record := unit.record()) is not None
        ]
        records.sort(key=lambda record: record.started_at)
        self._quanta = {record.unit.id: record.unit.quantum.cpu for record in records}
        self._crowded: tuple[UnitId, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether an agent of this host has divided the processors since the machine's boot."""
        return bool(_read(self._host / CPUS))

    @property
    def summary(self) -> str:
        """`cores of their own`, with the units that have none."""
        if not self._crowded:
            return "cores of their own"
        return (
            f"cores of their own, except {', '.join(self._crowded)}: "
            f"{len(_allowed_processors())} processors are too few"
        )

    def other(self, top: Path | None) -> Path | None:
        """Return the group of another host that divides the processors of this machine, or None.

        `top` is the whole machine's tree.
        """
        groups = (
            file.parent for file in (top or self._levels[0]).glob(f"**/sluice-*/*/{CPUS}") if _read(file)
        )
        return next((group for group in groups if self._host not in (group, *group.parents)), None)

    def open(self) -> None:
        """Make the host's group."""
        self._host.mkdir(parents=True, exist_ok=True)
        if self._own_groups:
            for parent, level in pairwise(self._levels):
                for name in (MEMS, CPUS):  # no process can join before both are set, here and in parents
                    (level / name).write_text((parent / name).read_text())
        else:
            for level in self._levels:
                (level / "cgroup.subtree_control").write_text("+cpuset")
            (self._host / CPUS).write_text(_written(_allowed_processors()))

    def adopt_running_units(self) -> None:
        """Give the running units their processors."""
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
        """Return the files to which a process writes its pid to run on the unit's processors.

        Return none in version 2, and while the unit has no processors.
        """
        group = self._host / unit
        return (
            (group / "cgroup.procs",)
            if self._own_groups and _read(group / CPUS) and _read(group / MEMS)
            else ()
        )

    def remove(self, unit: UnitId) -> None:
        """Remove a unit's group, and give its processors to other units."""
        if (self._host / unit).exists():
            (self._host / unit).rmdir()
        if self._quanta.pop(unit, None) is not None:
            self._divide()

    def close(self) -> None:
        """Remove the host's group, if it is empty."""
        for group in (self._host, self._host.parent):
            with suppress(OSError):
                group.rmdir()

    def undo(self) -> None:
        """Let all units run on all processors again."""
        for group in self._host.glob("*/"):
            if self._own_groups:
                for _ in range(MOVES):
                    _move(
                        map(int, (group / "cgroup.procs").read_text().split()),
                        _own_group(self._levels[0]) / "cgroup.procs",
                    )
                group.rmdir()
            else:
                (group / CPUS).write_text("\n")
        if self._own_groups:
            self.close()
        else:
            (self._host / CPUS).write_text("\n")

    def _divide(self) -> None:
        """Write the processors of all units; raise the last OSError after all units are tried."""
        current = {unit: _read(self._host / unit / CPUS) for unit in self._quanta}
        division = divide(_allowed_processors(), current, self._quanta)
        last_error = None
        # Sharing units come first and make room, so the state is correct if the agent ends in
        # between.
        for unit in sorted(self._quanta, key=division.own.__contains__):
            if (numbers := division.processors_of(unit)) != current[unit]:
                try:
                    (self._host / unit / CPUS).write_text(_written(numbers))
                except OSError as error:
                    last_error = error
        if division.crowded != self._crowded:
            self._crowded = division.crowded
            log.warning("the units with cores of their own have changed", cores=self.summary)
        if last_error is not None:
            raise last_error

    def _make(self, unit: UnitId) -> None:
        if self._own_groups:
            (self._host / unit).mkdir(exist_ok=True)
            (self._host / unit / MEMS).write_text((self._host / MEMS).read_text())


class ContainersWithCores(ContainersWrapper):
    """Containers whose units have cores of their own."""

    def __init__(self, containers: Containers, cpusets: Cpusets) -> None:
        """Add processors to `containers`."""
        super().__init__(containers)
        self._cpusets = cpusets
        self._logged_error: str | None = None

    @property
    def limits(self) -> str:
        """The limits of the wrapped containers, and the state of the processors."""
        return f"{super().limits}; {self._cpusets.summary}"

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's container, and give it its processors."""
        joins = super().admit(unit)
        self._try(lambda: self._cpusets.admit(unit))
        return (*joins, *self._cpusets.joins(unit.id))

    def remove(self, unit: UnitId) -> None:
        """Remove an empty container, and give its processors to other units."""
        super().remove(unit)
        self._try(lambda: self._cpusets.remove(unit))

    def close(self) -> None:
        """Remove the host's own container, if it is empty."""
        super().close()
        self._cpusets.close()

    def adopt_running_units(self) -> None:
        """Give the running units their processors."""
        self._try(self._cpusets.adopt_running_units)

    def _try(self, step: Callable[[], None]) -> None:
        """Do a step; log the same OSError once."""
        try:
            step()
        except OSError as error:
            if str(error) != self._logged_error:
                log.warning(
                    "cpusets cannot be written: units run on processors of other units", error=str(error)
                )
            self._logged_error = str(error)
        else:
            self._logged_error = None


def open_cores(
    home: Path, facts: HostFacts, cores: Cores, containers: Containers, mounts: Path = Path("/proc/mounts")
) -> tuple[Containers, str]:
    """Add processors to the containers if the site file says `cores: own`.

    Return the containers, and the state of the processors for the log.
    """
    cpusets, trees = _find(home, facts.name, containers, mounts), find_trees(mounts)
    try:
        if cores == "shared":
            if cpusets is not None and cpusets.exists:
                cpusets.undo()
            return containers, NOT_ASKED
        if cpusets is None or trees is None:
            return containers, _shared(
                missing_requirement(
                    containers.trees if isinstance(containers, ControlGroups) else None, mounts
                )
            )
        if (other := cpusets.other(cpuset_tree(trees, mounts))) is not None:
            return containers, _shared(
                f"host {other.name} of {other.parent.name} divides the processors of this machine already; "
                f"if that host is gone, remove its groups: rmdir {other}/*/ {other}"
            )
        cpusets.open()
    except OSError as error:
        return containers, _shared(str(error))
    with_cores = ContainersWithCores(containers, cpusets)
    with_cores.adopt_running_units()
    if (shortage := processor_shortage(facts.cpu)) is None:
        return with_cores, cpusets.summary
    log.warning("not every unit can have cores of its own", reason=shortage)
    return with_cores, f"{cpusets.summary}; {shortage}"


def find_cores(
    home: Path, host: str, containers: Containers, mounts: Path = Path("/proc/mounts")
) -> Containers:
    """Return the containers with the processors that the host's agent divides.

    For processes that only end the host's units.
    """
    cpusets = _find(home, host, containers, mounts)
    return ContainersWithCores(containers, cpusets) if cpusets is not None and cpusets.exists else containers


def missing_requirement(trees: Trees | None, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Return the missing requirement of `cores: own` and its remedy; None if none is missing.

    Changes nothing.
    """
    if trees is None:
        return "units have no control groups"
    if trees.version is V1 and os.geteuid() != 0:
        return (
            f"user {os.geteuid()} may not set processors: "
            "run the agent as root (`systemctl edit sluice-agent@…`, User=root)"
        )
    if cpuset_tree(trees, mounts) is not None:
        return None
    if trees.version is V1:
        folder = trees.at[CPU].with_name(CONTROLLER)
        return (
            f"the controller {CONTROLLER} is not mounted: "
            f"mkdir {folder}; mount -t cgroup -o {CONTROLLER} {CONTROLLER} {folder}"
        )
    return (
        f"{trees.at[CPU]}/cgroup.controllers has no {CONTROLLER}: "
        f"delegate it with Delegate=yes in the agent's unit file, or add {CONTROLLER} to the controllers "
        "that Delegate lists; the kernel needs CONFIG_CPUSETS"
    )


def processor_shortage(cpu: float) -> str | None:
    """Return a message if `capacity.cpu` exceeds the processors; None if it does not."""
    processors = len(_allowed_processors())
    if cpu <= processors:
        return None
    return (
        f"capacity.cpu is {cpu:g}, but the agent may use {processors} processors, "
        "so the last units share: lower capacity.cpu"
    )


def _find(home: Path, host: str, containers: Containers, mounts: Path) -> Cpusets | None:
    if not isinstance(containers, ControlGroups):
        return None
    tree = cpuset_tree(containers.trees, mounts)
    return None if tree is None else Cpusets(tree, containers, HostFolder(home, host))


def _shared(reason: str | None) -> str:
    log.warning("units have no cores of their own; all units share all processors", reason=reason)
    return f"shared by quantum.cpu: {reason}"


def _allowed_processors() -> frozenset[int]:
    """Return the processors that the agent, and so its units, may use."""
    return frozenset(os.sched_getaffinity(0))


def _own_group(tree: Path, membership: Path = Path("/proc/self/cgroup")) -> Path:
    """Return the agent's own cpuset group, where units without a group run (version 1)."""
    lines = (line.split(":", 2) for line in membership.read_text().splitlines())
    own = next((path for _, controllers, path in lines if CONTROLLER in controllers.split(",")), "/")
    return group if (group := tree / own.lstrip("/")).is_dir() else tree


def _move(pids: Iterable[int], procs: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            procs.write_text(str(pid))


def _read(file: Path) -> frozenset[int]:
    """Return the numbers in a file such as `0-2,7`; an empty set without a file."""
    try:
        parts = [part.partition("-") for part in file.read_text().strip().split(",") if part]
    except FileNotFoundError:
        return frozenset()
    return frozenset(
        number for first, _, last in parts for number in range(int(first), int(last or first) + 1)
    )


def _written(numbers: frozenset[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
