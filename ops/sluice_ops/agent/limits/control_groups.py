"""Containers: one control group per unit, below one per host, below one per installation.

Weights are relative, so a host's weight is kept at the sum of its units': a quiet unit alone on one embedded host yields to busy units on
another, as if there were no hosts between them. All together weigh no more than the machine's cores, whatever they hold, so that Kafka and
ZooKeeper on the same machine are not starved. Root divides the machine's own tree; others divide what was delegated to them (see
`sluice_ops.agent.limits.delegation`). Without either there are no limits, and that is said.
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
    find_trees,
    v2_tree,
)
from sluice_ops.agent.limits.delegation import delegated
from sluice_ops.model.assignment import Unit
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Capacity

log = structlog.get_logger()

MEBIBYTE = 1 << 20
HEADROOM = 1.15
"""A unit is killed at its quantum and this much more: the kernel counts page cache and stacks that a heap's arithmetic does not."""
QUIET = 0.2
"""A preparing unit has this part of its weight: little, so that what serves records comes first, and enough to be ready in minutes."""
THREADS = 4096
"""A unit has so many threads at most, ten times what the largest takes: one that starts ever more of them fails alone."""
NO_LIMIT = 1 << 62
"""Version 1 writes a number above this where there is none. Unit: bytes."""
DISK_WEIGHTS = (1, 1000)
"""The smallest and the largest."""


@dataclass(frozen=True)
class Usage:
    """What a unit takes of its host."""

    memory: int
    """Without file cache that the kernel would rather give back. Unit: bytes."""
    limit: int | None
    """At this much something in it is killed; None where it has no limit. Unit: bytes."""
    cpu: float | None
    """Since it was started; None where the kernel does not count it. Unit: seconds."""


class Containers(Protocol):
    """What the agent asks of the containers of one host."""

    @property
    def limits(self) -> str:
        """Say which there are, as `cgroup v1`, `cgroup v2` or `cgroup v2, delegated`, or why there are none."""

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's container, with its limits; return the files that a process writes its pid to, to be in it."""

    def set_weights(self, unit: Unit) -> None:
        """Set the weights of a container that is there."""

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Return what runs in the container."""

    def remove(self, unit: UnitId) -> None:
        """Remove an empty container; OSError when it is not empty."""

    def close(self) -> None:
        """Remove the host's own container, once it is empty."""

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Whether the kernel killed something in it because it was full."""

    def usage(self, unit: UnitId) -> Usage | None:
        """Return what it takes; None where nobody counts, or where it is gone."""


class ControlGroups:
    """Containers by control groups, version 1 (one tree per controller) or 2 (one tree)."""

    def __init__(self, found: Trees, installation: str, host: str) -> None:
        """Divide these trees."""
        self.name = found.version.name
        self.trees, self.version = found, found.version
        self.path = Path(installation, host)
        """Where the host's group is in each tree."""
        at = {use: root / self.path for use, root in found.at.items()}
        self._memory, self._cpu, self._times = at[MEMORY], at[CPU], at[TIMES]
        self._disk, self._tasks = at.get(DISK), at.get(TASKS)
        self._groups = tuple(dict.fromkeys(at.values()))
        self._given: int | None = None
        """What the host gives; None for who only looks for units, or ends them. Unit: bytes."""
        self._promised = 0
        """What its units may take, all together. Unit: bytes."""

    @property
    def limits(self) -> str:
        """Say which there are, and whether the host has promised more memory than it gives."""
        if self._given is None or self._promised <= self._given:
            return self.name
        more = f"{self._promised // MEBIBYTE:,} MiB instead of {self._given // MEBIBYTE:,}"
        return f"{self.name}; its limit of memory is {more}, because the units that are there were promised so much"

    @property
    def there(self) -> bool:
        """Whether the host's group was made, since the machine has started."""
        return self._memory.is_dir()

    def has(self, unit: UnitId) -> bool:
        """Tell whether a unit has its groups."""
        return (self._memory / unit).is_dir()

    def prepare(self, capacity: Capacity) -> None:
        """Make the host's group, with what the host has to give."""
        for leaf in self._groups:
            leaf.mkdir(parents=True, exist_ok=True)
        if self.version is V2:
            for group in (*self.trees.roots, self._memory.parent, self._memory):
                (group / "cgroup.subtree_control").write_text(self.trees.handed_down())
        self._given = _with_headroom(capacity.memory)
        self._hold()
        self._set_weight(self._cpu.parent, self.version.core * (os.cpu_count() or 1))
        self._balance()

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Make the unit's group, limited to its quantum."""
        groups = tuple(group / unit.id for group in self._groups)
        for group in groups:
            group.mkdir(parents=True, exist_ok=True)
        (self._memory / unit.id / self.version.memory_limit).write_text(
            str(_with_headroom(unit.quantum.memory))
        )
        self._hold()
        if self._tasks is not None:
            (self._tasks / unit.id / "pids.max").write_text(str(THREADS))
        self.set_weights(unit)
        return tuple(group / "cgroup.procs" for group in groups)

    def set_weights(self, unit: Unit) -> None:
        """Give the unit the weights of its quantum, or little of them while it is quiet."""
        part = QUIET if unit.quiet else 1
        self._set_weight(self._cpu / unit.id, int(unit.quantum.cpu * self.version.core * part))
        self._set_disk_weight(unit.id, int(unit.quantum.io * part))
        self._balance()

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Return what is in the unit's groups."""
        del session
        found: set[int] = set()
        for group in self._groups:
            try:
                found.update(int(pid) for pid in (group / unit / "cgroup.procs").read_text().split())
            except OSError:
                continue
        return frozenset(found)

    def remove(self, unit: UnitId) -> None:
        """Remove the unit's groups."""
        for group in self._groups:
            if (group / unit).exists():
                (group / unit).rmdir()
        self._hold()
        self._balance()

    def close(self) -> None:
        """Remove the host's groups, and the installation's with the last host."""
        for group in (*self._groups, *(group.parent for group in self._groups)):
            with suppress(OSError):
                group.rmdir()

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Ask the kernel's counter."""
        try:
            lines = (self._memory / unit / self.version.memory_events).read_text().splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)

    def usage(self, unit: UnitId) -> Usage | None:
        """Ask the kernel's counters."""
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

    def _hold(self) -> None:
        """Limit the host to what it gives, or to what its units were promised where that is more: a lower number kills none of them."""
        if self._given is None:
            return
        before = self._promised
        self._promised = sum(_limits(self._memory, self.version.memory_limit))
        (self._memory / self.version.memory_limit).write_text(str(max(self._given, self._promised)))
        if self._promised > max(self._given, before):
            log.warning(
                "the host's units were promised more memory than it gives: they keep it",
                promised_mib=self._promised // MEBIBYTE,
                gives_mib=self._given // MEBIBYTE,
            )

    def _cpu_seconds(self, unit: UnitId) -> float | None:
        if self.version is V2:
            return _line(self._times / unit / "cpu.stat", "usage_usec") / 1e6
        counter = self._times / unit / "cpuacct.usage"
        return int(counter.read_text()) / 1e9 if counter.exists() else None

    def _balance(self) -> None:
        self._set_weight(self._cpu, sum(_weights(self._cpu, self.version.weight)))
        if self._disk is not None:
            for name in self.version.disk_weights:
                if weights := _weights(self._disk, name):
                    self._set_disk_weight("", sum(weights))

    def _set_weight(self, group: Path, weight: int) -> None:
        (group / self.version.weight).write_text(
            str(min(self.version.largest, max(self.version.smallest, weight)))
        )

    def _set_disk_weight(self, unit: str, weight: int) -> None:
        """Set it where the kernel knows one; whether it counts is up to the disk's scheduler, and `sluice doctor --host` says it."""
        if self._disk is not None:
            least, most = DISK_WEIGHTS
            for name in self.version.disk_weights:
                if (file := self._disk / unit / name).exists():
                    file.write_text(str(min(most, max(least, weight))))


class NoContainers:
    """Units without limits, held together by their session and by what is in their environment."""

    def __init__(self, why: str, home: Path, host: str) -> None:
        """Say why there are none."""
        self.limits = f"none: {why}"
        self._home, self._host = home, host

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Nothing to join."""
        del unit
        return ()

    def set_weights(self, unit: Unit) -> None:
        """Nothing to weigh."""

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Return what carries the unit's marks in the unit's session; anywhere, while that is not known."""
        return find_processes(
            session, frozenset({f"SLUICE_UNIT={self._host}/{unit}", f"SLUICE_HOME={self._home}"})
        )

    def remove(self, unit: UnitId) -> None:
        """Nothing to remove."""

    def close(self) -> None:
        """Nothing to remove."""

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Nobody counts."""
        del unit
        return False

    def usage(self, unit: UnitId) -> None:
        """Nobody counts."""
        del unit


class ContainersWrapper:
    """Containers around others, which do all that a subclass does not."""

    def __init__(self, containers: Containers) -> None:
        """Add something to what these do."""
        self._containers = containers

    @property
    def limits(self) -> str:
        """Ask them."""
        return self._containers.limits

    def admit(self, unit: Unit) -> tuple[Path, ...]:
        """Have them make the unit's container."""
        return self._containers.admit(unit)

    def set_weights(self, unit: Unit) -> None:
        """Have them set its weights."""
        self._containers.set_weights(unit)

    def processes(self, unit: UnitId, session: int | None) -> frozenset[int]:
        """Ask them."""
        return self._containers.processes(unit, session)

    def remove(self, unit: UnitId) -> None:
        """Have them remove the unit's container."""
        self._containers.remove(unit)

    def close(self) -> None:
        """Have them remove the host's own."""
        self._containers.close()

    def ran_out_of_memory(self, unit: UnitId) -> bool:
        """Ask them."""
        return self._containers.ran_out_of_memory(unit)

    def usage(self, unit: UnitId) -> Usage | None:
        """Ask them."""
        return self._containers.usage(unit)


def installation_group(home: Path) -> str:
    """Name the group of one installation, so that two checkouts on a machine do not meet."""
    return f"sluice-{hashlib.sha256(str(home).encode()).hexdigest()[:10]}"


def find_containers(home: Path, host: str, mounts: Path = Path("/proc/mounts")) -> Containers:
    """Return a host's containers as its agent has made them."""
    found = find_trees(mounts)
    if found is None:
        return NoContainers("none are mounted", home, host)
    groups = _groups(found, HostFolder(home, host).group(), home, host)
    return groups if groups.there else NoContainers("its agent has made none", home, host)


def open_containers(
    home: Path,
    host: str,
    capacity: Capacity,
    mounts: Path = Path("/proc/mounts"),
    membership: Path = Path("/proc/self/cgroup"),
) -> Containers:
    """Find what this machine offers, make the host's group, and say which it is."""
    found = find_trees(mounts)
    if found is None:
        return _without("no control groups for cpu and memory are mounted", home, host)
    group = delegated(found.at[CPU], membership) if found.version is V2 else None
    groups = _groups(found, group, home, host)
    try:
        groups.prepare(capacity)
    except OSError as error:
        groups.close()
        why = f"control groups cannot be written by user {os.geteuid()} ({error.strerror})"
        return _without(
            f"{why}; run the agent as root, or have systemd delegate it a group: docs/limits.md", home, host
        )
    with log_write_errors("the control group of the units (group)"):
        HostFolder(home, host).write_group(group)
    return groups


def _groups(found: Trees, group: Path | None, home: Path, host: str) -> ControlGroups:
    if group is None:
        return ControlGroups(found, installation_group(home), host)
    groups = ControlGroups(v2_tree(group) or found, installation_group(home), host)
    groups.name = f"{V2.name}, delegated"
    return groups


def remove_groups(home: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """Remove what is left of an installation once nothing runs in it: the groups of hosts that are gone, too."""
    if (found := find_trees(mounts)) is not None:
        cpusets = cpuset_tree(found, mounts)
        for root in found.roots if cpusets is None else (*found.roots, cpusets):
            for group in sorted((root / installation_group(home)).glob("**/"), reverse=True):
                with suppress(OSError):
                    group.rmdir()


def _without(why: str, home: Path, host: str) -> NoContainers:
    log.warning("units run without limits", host=host, why=why)
    return NoContainers(why, home, host)


def _weights(group: Path, name: str) -> list[int]:
    """Return the weights of all that is in a group; version 2 writes `default 100`."""
    found = []
    for child in group.iterdir():
        with suppress(OSError):
            found.append(int((child / name).read_text().split()[-1]))
    return found


def _with_headroom(memory: int) -> int:
    """Return the limit for so many MiB. Unit: bytes."""
    return int(memory * HEADROOM) * MEBIBYTE


def _limits(group: Path, name: str) -> list[int]:
    """Return the limits of all that is in a group and has one."""
    found = []
    for child in group.iterdir():
        with suppress(OSError):
            found.append(_limit(child / name))
    return [limit for limit in found if limit is not None]


def _limit(path: Path) -> int | None:
    """Return a limit of memory; None where there is none, for which version 2 has a word."""
    said = path.read_text().strip()
    return None if said == "max" or int(said) > NO_LIMIT else int(said)


def _line(path: Path, name: str) -> int:
    """Return one number of a file that has a name and a number in each line."""
    return next(
        (int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == name), 0
    )
