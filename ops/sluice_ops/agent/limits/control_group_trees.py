"""The mounted trees of control groups, and the files and numbers of each version.

Version 1 has a tree for each resource controller, such as `cpu` or `memory`. Version 2 has one tree
for all of them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MEMORY, CPU, TIMES, DISK, TASKS = "memory", "cpu", "times", "disk", "tasks"
"""The uses of a tree: memory limits, processor weights, processor time counters, disk weights, and
thread limits.

Without memory limits and processor weights, units have no limits. The other uses are optional.
"""
AGENTS = "agent"
"""The group of agents below a delegated group.

In version 2, a group with processes cannot pass controllers on, and a group that passes controllers
on cannot hold processes. So systemd starts each agent in this group (`DelegateSubgroup=agent`), and
the units' groups are beside it. If an agent moved itself there, the next agent could not start
while a unit runs.
"""


@dataclass(frozen=True)
class Version:
    """The files and numbers of one version of control groups."""

    name: str
    controllers: Mapping[str, str]
    """The use of each controller."""
    memory_limit: str
    memory_events: str
    weight: str
    weight_of_core: int
    min_weight: int
    max_weight: int
    memory_now: str
    cache: str
    """The line of `memory.stat` with the reclaimable file cache."""
    disk_weights: tuple[str, ...]
    """Possible files for disk weights; the kernel's configuration decides which exist."""


V1 = Version(
    "cgroup v1",
    {"memory": MEMORY, "cpu": CPU, "cpuacct": TIMES, "blkio": DISK, "pids": TASKS},
    "memory.limit_in_bytes",
    "memory.oom_control",
    "cpu.shares",
    1024,
    2,
    262_144,
    "memory.usage_in_bytes",
    "total_inactive_file",
    ("blkio.bfq.weight",),
)
V2 = Version(
    "cgroup v2",
    {"memory": MEMORY, "cpu": CPU, "io": DISK, "pids": TASKS},
    "memory.max",
    "memory.events",
    "cpu.weight",
    100,
    1,
    10_000,
    "memory.current",
    "inactive_file",
    ("io.weight", "io.bfq.weight"),
)


@dataclass(frozen=True)
class Trees:
    """The folder for each use, in which groups are made."""

    version: Version
    at: Mapping[str, Path]

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders without duplicates."""
        return tuple(dict.fromkeys(self.at.values()))

    def subtree_control(self) -> str:
        """Return the text for `cgroup.subtree_control`: the controllers of child groups (version
        2).
        """
        return " ".join(
            f"+{controller}" for controller, use in self.version.controllers.items() if use in self.at
        )


def find_trees(mounts: Path = Path("/proc/mounts")) -> Trees | None:
    """Return the mounted trees; None without memory limits or processor weights."""
    v1_trees: dict[str, Path] = {}
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        point = Path(where)
        if kind == "cgroup2" and (trees := v2_tree(point)) is not None:
            return trees
        if kind == "cgroup":
            for controller in V1.controllers.keys() & set(options.split(",")):
                v1_trees[V1.controllers[controller]] = point
    return Trees(V1, {TIMES: v1_trees[CPU]} | v1_trees) if v1_trees.keys() >= {MEMORY, CPU} else None


def v2_tree(group: Path) -> Trees | None:
    """Return the tree of version 2 below `group`.

    Return None if the group has no controllers for memory and cpu.
    """
    try:
        controllers = (group / "cgroup.controllers").read_text().split()
    except FileNotFoundError:
        return None
    uses = {use for controller, use in V2.controllers.items() if controller in controllers}
    return Trees(V2, dict.fromkeys((*uses, TIMES), group)) if uses >= {MEMORY, CPU} else None


def delegated_group(tree: Path, membership: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the group below `tree` (version 2) that systemd delegated to this process.

    `Delegate=yes` delegates, so that the agent needs no root. Return None without such a group.
    """
    own = next(
        (line.removeprefix("0::") for line in membership.read_text().splitlines() if line.startswith("0::")),
        "/",
    )
    group = tree / own.lstrip("/")
    if group.name != AGENTS:
        return None
    needed = (group.parent, *(group.parent / name for name in ("cgroup.procs", "cgroup.subtree_control")))
    return group.parent if all(os.access(path, os.W_OK) for path in needed) else None


def cpuset_tree(trees: Trees, mounts: Path = Path("/proc/mounts")) -> Path | None:
    """Return the folder with the controller cpuset, which assigns processors; None without one."""
    if trees.version is V2:
        root = trees.at[CPU]
        return root if "cpuset" in (root / "cgroup.controllers").read_text().split() else None
    lines = (line.split() for line in mounts.read_text().splitlines())
    return next(
        (
            Path(where)
            for _, where, kind, options, *_ in lines
            if kind == "cgroup" and "cpuset" in options.split(",")
        ),
        None,
    )


def disk_weights_count(folder: Path, sys: Path = Path("/sys")) -> bool | None:
    """Tell whether the folder's disk obeys disk weights, which only the scheduler bfq does.

    Return None if the disk shows no scheduler.
    """
    device = folder.stat().st_dev
    block = sys / "dev/block" / f"{os.major(device)}:{os.minor(device)}"
    for queue in (block / "queue/scheduler", block.resolve().parent / "queue/scheduler"):
        if queue.exists():
            return "[bfq]" in queue.read_text()
    return None
