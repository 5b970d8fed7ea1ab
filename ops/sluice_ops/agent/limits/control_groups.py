"""Containers of units: one control group per unit, in the host's group, in the installation's
group.

Weights are relative. So a host's weight is the sum of its units' weights: a quiet unit alone on one
embedded host yields to busy units on another one, as if they were on one host. The installation's
weight is at most the machine's cores, so that Kafka and ZooKeeper on the same machine are not
starved.

As root, the agent uses the machine's own tree; else the group that systemd delegated to it. Without
either, units have no limits, and the agent logs why.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from sluice_ops.agent.host.processes import find_processes
from sluice_ops.agent.host.store import HostFolder, log_write_errors
from sluice_ops.agent.limits.control_group_trees import (
    CPU,
    DISK,
    MEMORY,
    TASKS,
    TIMES,
    V2,
    Trees,
    cpuset_tree,
    delegated_group,
    find_trees,
    v2_tree,
)
from sluice_ops.model.assignment import Unit
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Capacity
from sluice_ops.model.wording import page

log = structlog.get_logger()

MEBIBYTE = 1 << 20
HEADROOM = 1.15
"""The memory limit of a unit, as a multiple of its quantum: the kernel also counts page cache and
thread stacks.
"""
QUIET = 0.2
"""The part of its weights that a preparing unit gets: working units come first, and the unit is
still ready within minutes.
"""
THREADS = 4096
"""The thread limit of a unit, ten times what the largest needs: a unit that starts more and more
threads fails alone.
"""
NO_LIMIT = 1 << 62
"""In version 1, a number above this one means no limit. Unit: bytes."""
DISK_WEIGHTS = (1, 1000)
"""The smallest and the largest disk weight."""


@dataclass(frozen=True)
class Usage:
    """The memory and processor time that a unit uses."""

    memory: int
    """The memory in use, without reclaimable file cache. Unit: bytes."""
    limit: int | None
    """The memory at which the kernel kills a process of the unit; None without a limit. Unit:
    bytes.
    """
    cpu: float | None
    """Processor time since the unit's start; None if the kernel does not count it.

    Unit: seconds.
    """


class Containers(Protocol):
    """The containers of one host."""

    @property
    def limits(self) -> str:
        """`cgroup v1`, `cgroup v2` or `cgroup v2, delegated`; or `none` and the reason."""

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's container with its limits.

        Return the files to which a process writes its pid to join the container.
        """

    def set_weights(self, unit: Unit) -> None:
        """Set the weights of an existing container."""

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Return the pids of the processes in the container."""

    def remove(self, unit: UnitId) -> None:
        """Remove an empty container; OSError if it is not empty."""

    def close(self) -> None:
        """Remove the host's own container, if it is empty."""

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Whether the kernel killed a process of the container at its memory limit."""

    def usage(self, unit: UnitId) -> Usage | None:
        """Return the container's usage; None without counters, or if the container is gone."""


class ControlGroups:
    """Containers as control groups, version 1 (one tree per controller) or 2 (one tree)."""

    def __init__(self, trees: Trees, installation: str, host: str) -> None:
        """Use the groups of a host below these trees."""
        self.name = trees.version.name
        self.trees, self.version = trees, trees.version
        self.path = Path(installation, host)
        """The path of the host's group in each tree."""
        at = {use: root / self.path for use, root in trees.at.items()}
        self._memory, self._cpu, self._times = at[MEMORY], at[CPU], at[TIMES]
        self._disk, self._tasks = at.get(DISK), at.get(TASKS)
        self._groups = tuple(dict.fromkeys(at.values()))
        self._capacity: int | None = None
        """The memory limit by the host's capacity; None if this process only finds or ends units.

        Unit: bytes.
        """
        self._promised = 0
        """The sum of the units' memory limits. Unit: bytes."""

    @property
    def limits(self) -> str:
        """The name of the groups, and the memory limit if the units exceed the host's capacity."""
        if self._capacity is None or self._promised <= self._capacity:
            return self.name
        limit = f"{self._promised // MEBIBYTE:,} MiB instead of {self._capacity // MEBIBYTE:,}"
        return f"{self.name}; the host's memory limit is {limit}, because its units were promised so much"

    @property
    def exists(self) -> bool:
        """Whether an agent has made the host's group since the machine's boot."""
        return self._memory.is_dir()

    def has(self, unit: UnitId) -> bool:
        """Tell whether a unit has its groups."""
        return (self._memory / unit).is_dir()

    def prepare(self, capacity: Capacity) -> None:
        """Make the host's group, limited to the host's capacity."""
        for group in self._groups:
            group.mkdir(parents=True, exist_ok=True)
        if self.version is V2:
            for group in (*self.trees.roots, self._memory.parent, self._memory):
                (group / "cgroup.subtree_control").write_text(self.trees.subtree_control())
        self._capacity = _with_headroom(capacity.memory)
        self._limit_host_memory()
        self._set_weight(self._cpu.parent, self.version.weight_of_core * (os.cpu_count() or 1))
        self._set_host_weights()

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's group, limited to its quantum."""
        groups = tuple(group / unit.id for group in self._groups)
        for group in groups:
            group.mkdir(parents=True, exist_ok=True)
        (self._memory / unit.id / self.version.memory_limit).write_text(
            str(_with_headroom(unit.quantum.memory))
        )
        self._limit_host_memory()
        if self._tasks is not None:
            (self._tasks / unit.id / "pids.max").write_text(str(THREADS))
        self.set_weights(unit)
        return tuple(group / "cgroup.procs" for group in groups)

    def set_weights(self, unit: Unit) -> None:
        """Set the weights by the unit's quantum; a quiet unit gets a fifth."""
        part = QUIET if unit.quiet else 1
        self._set_weight(self._cpu / unit.id, int(unit.quantum.cpu * self.version.weight_of_core * part))
        self._set_disk_weight(unit.id, int(unit.quantum.io * part))
        self._set_host_weights()

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Return the pids in the unit's groups."""
        del session
        pids: set[int] = set()
        for group in self._groups:
            try:
                pids.update(int(pid) for pid in (group / unit / "cgroup.procs").read_text().split())
            except OSError:
                continue
        return frozenset(pids)

    def remove(self, unit: UnitId) -> None:
        """Remove the unit's groups."""
        for group in self._groups:
            if (group / unit).exists():
                (group / unit).rmdir()
        self._limit_host_memory()
        self._set_host_weights()

    def close(self) -> None:
        """Remove the host's groups; remove the installation's groups with its last host."""
        for group in (*self._groups, *(group.parent for group in self._groups)):
            with suppress(OSError):
                group.rmdir()

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Read the kernel's counter of out-of-memory kills."""
        try:
            lines = (self._memory / unit / self.version.memory_events).read_text().splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)

    def usage(self, unit: UnitId) -> Usage | None:
        """Read the kernel's counters."""
        memory = self._memory / unit
        try:
            now, limit = (
                int((memory / self.version.memory_now).read_text()),
                _limit(memory / self.version.memory_limit),
            )
            cache = _line(memory / "memory.stat", self.version.cache)
            return Usage(max(0, now - cache), limit, self._cpu_seconds(unit))
        except OSError:
            return None

    def _limit_host_memory(self) -> None:
        """Limit the host's memory to its capacity, or to the sum of its units' limits if that is
        more.

        So a lower capacity in the site file kills no running unit.
        """
        if self._capacity is None:
            return
        before = self._promised
        self._promised = sum(_limits(self._memory, self.version.memory_limit))
        (self._memory / self.version.memory_limit).write_text(str(max(self._capacity, self._promised)))
        if self._promised > max(self._capacity, before):
            log.warning(
                "the units' quanta exceed the host's memory; running units keep their limits; "
                "raise capacity.memory in the site file, or drain the host",
                promised_mib=self._promised // MEBIBYTE,
                capacity_mib=self._capacity // MEBIBYTE,
            )

    def _cpu_seconds(self, unit: UnitId) -> float | None:
        if self.version is V2:
            return _line(self._times / unit / "cpu.stat", "usage_usec") / 1e6
        counter = self._times / unit / "cpuacct.usage"
        return int(counter.read_text()) / 1e9 if counter.exists() else None

    def _set_host_weights(self) -> None:
        """Set the host's weights to the sums of its units' weights."""
        self._set_weight(self._cpu, sum(_weights(self._cpu, self.version.weight)))
        if self._disk is not None:
            for name in self.version.disk_weights:
                if weights := _weights(self._disk, name):
                    self._set_disk_weight("", sum(weights))

    def _set_weight(self, group: Path, weight: int) -> None:
        (group / self.version.weight).write_text(
            str(min(self.version.max_weight, max(self.version.min_weight, weight)))
        )

    def _set_disk_weight(self, unit: str, weight: int) -> None:
        """Set the disk weight where the kernel has a file for it.

        Only the disk scheduler bfq obeys the weight; `sluice doctor --host` tells.
        """
        if self._disk is not None:
            least, most = DISK_WEIGHTS
            for name in self.version.disk_weights:
                if (file := self._disk / unit / name).exists():
                    file.write_text(str(min(most, max(least, weight))))


class NoContainers:
    """Units without limits: a unit's processes are found by session and environment."""

    def __init__(self, reason: str, home: Path, host: str) -> None:
        """`reason` tells why units have no limits."""
        self.limits = f"none: {reason}"
        self._home, self._host = home, host

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Do nothing: there is no group to join."""
        del unit
        return ()

    def set_weights(self, unit: Unit) -> None:
        """Do nothing: there are no weights."""

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Return the pids of the session with the unit's environment variables.

        While the session is unknown, search all sessions.
        """
        return find_processes(
            session, frozenset({f"SLUICE_UNIT={self._host}/{unit}", f"SLUICE_HOME={self._home}"})
        )

    def remove(self, unit: UnitId) -> None:
        """Do nothing: there is no group."""

    def close(self) -> None:
        """Do nothing: there is no group."""

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Return False: there is no counter."""
        del unit
        return False

    def usage(self, unit: UnitId) -> None:
        """Return None: there are no counters."""
        del unit


class ContainersWrapper:
    """Passes each call to the wrapped containers; a subclass adds something."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers

    @property
    def limits(self) -> str:
        return self._containers.limits

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        return self._containers.admit(unit)

    def set_weights(self, unit: Unit) -> None:
        self._containers.set_weights(unit)

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        return self._containers.processes(unit, session)

    def remove(self, unit: UnitId) -> None:
        self._containers.remove(unit)

    def close(self) -> None:
        self._containers.close()

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        return self._containers.ran_out_of_memory(unit)

    def usage(self, unit: UnitId) -> Usage | None:
        return self._containers.usage(unit)


def installation_group(home: Path) -> str:
    """Return the name of the installation's group: two checkouts on a machine have different
    ones.
    """
    return f"sluice-{hashlib.sha256(str(home).encode()).hexdigest()[:10]}"


def find_containers(home: Path, host: str, mounts: Path = Path("/proc/mounts")) -> Containers:
    """Return the containers that a host's agent has made, without making any."""
    trees = find_trees(mounts)
    if trees is None:
        return NoContainers("no control groups are mounted", home, host)
    groups = _groups(trees, HostFolder(home, host).group(), home, host)
    return (
        groups if groups.exists else NoContainers("the host's agent has made no control groups", home, host)
    )


def open_containers(
    home: Path,
    host: str,
    capacity: Capacity,
    mounts: Path = Path("/proc/mounts"),
    membership: Path = Path("/proc/self/cgroup"),
) -> Containers:
    """Make the host's group, and return the containers; without control groups, log the reason."""
    trees = find_trees(mounts)
    if trees is None:
        return _without_limits("no control groups for cpu and memory are mounted", home, host)
    group = delegated_group(trees.at[CPU], membership) if trees.version is V2 else None
    groups = _groups(trees, group, home, host)
    try:
        groups.prepare(capacity)
    except OSError as error:
        groups.close()
        reason = (
            f"control groups cannot be written by user {os.geteuid()} ({error.strerror}); "
            "run the agent as root, or have systemd delegate a group to it: "
            f"see {page('Limits', 'Control groups')}"
        )
        return _without_limits(reason, home, host)
    with log_write_errors("the control group of the units (group)"):
        HostFolder(home, host).write_group(group)
    return groups


def _groups(trees: Trees, group: Path | None, home: Path, host: str) -> ControlGroups:
    if group is None:
        return ControlGroups(trees, installation_group(home), host)
    groups = ControlGroups(v2_tree(group) or trees, installation_group(home), host)
    groups.name = f"{V2.name}, delegated"
    return groups


def remove_groups(home: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Remove all empty groups of an installation, also those of removed hosts."""
    if (trees := find_trees(mounts)) is not None:
        cpusets = cpuset_tree(trees, mounts)
        for root in trees.roots if cpusets is None else (*trees.roots, cpusets):
            for group in sorted((root / installation_group(home)).glob("**/"), reverse=True):
                with suppress(OSError):
                    group.rmdir()


def _without_limits(reason: str, home: Path, host: str) -> NoContainers:
    log.warning("units run without limits of memory and cpu", host=host, reason=reason)
    return NoContainers(reason, home, host)


def _weights(group: Path, name: str) -> list[int]:
    """Return the weights of all groups in a group; version 2 writes `default 100`."""
    weights = []
    for child in group.iterdir():
        with suppress(OSError):
            weights.append(int((child / name).read_text().split()[-1]))
    return weights


def _with_headroom(memory: int) -> int:
    """Return the memory limit for a quantum or capacity in MiB. Unit: bytes."""
    return int(memory * HEADROOM) * MEBIBYTE


def _limits(group: Path, name: str) -> list[int]:
    """Return the memory limits of the groups in a group, as far as they have one."""
    limits = []
    for child in group.iterdir():
        with suppress(OSError):
            limits.append(_limit(child / name))
    return [limit for limit in limits if limit is not None]


def _limit(path: Path) -> int | None:
    """Return a memory limit; None if there is none, which version 2 writes as `max`.

    Unit: bytes.
    """
    text = path.read_text().strip()
    return None if text == "max" or int(text) > NO_LIMIT else int(text)


def _line(path: Path, name: str) -> int:
    """Return the number after `name` in a file with one name and number per line; 0 if absent."""
    return next(
        (int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == name), 0
    )
