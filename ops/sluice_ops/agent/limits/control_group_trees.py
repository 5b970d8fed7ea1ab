"""What this machine's kernel divides it by: control groups, version 1 (a tree for each controller) or 2 (one tree), as they are mounted."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MEMORY, CPU, TIMES, DISK, TASKS = "memory", "cpu", "times", "disk", "tasks"
"""What a tree is for: limits of memory, weights of processor time, counting it, weights of disk access, how many threads there may be.

Without the first two there are no limits; the others are used where they are.
"""


@dataclass(frozen=True)
class Version:
    """How one version of control groups is spoken to."""

    name: str
    controllers: Mapping[str, str]
    """What each controller is for."""
    memory_limit: str
    memory_events: str
    weight: str
    core: int
    """The weight of one core."""
    smallest: int
    largest: int
    memory_now: str
    cache: str
    """The line of `memory.stat` that is file cache of little use."""
    disk_weights: tuple[str, ...]
    """Which of them there are is up to what the kernel was built with."""


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
    """Where groups are made."""

    version: Version
    at: Mapping[str, Path]

    @property
    def roots(self) -> tuple[Path, ...]:
        """Each tree once."""
        return tuple(dict.fromkeys(self.at.values()))

    def handed_down(self) -> str:
        """Say which controllers the groups below are to have (version 2)."""
        return " ".join(
            f"+{controller}" for controller, use in self.version.controllers.items() if use in self.at
        )


def find_trees(mounts: Path = Path("/proc/mounts")) -> Trees | None:
    """Return what is mounted; None without limits of memory and weights of processor time."""
    first: dict[str, Path] = {}
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        point = Path(where)
        if kind == "cgroup2" and (found := v2_tree(point)) is not None:
            return found
        if kind == "cgroup":
            for controller in V1.controllers.keys() & set(options.split(",")):
                first[V1.controllers[controller]] = point
    return Trees(V1, {TIMES: first[CPU]} | first) if first.keys() >= {MEMORY, CPU} else None


def v2_tree(group: Path) -> Trees | None:
    """Return the tree that begins at a group, with the controllers that it was given; None when they are too few."""
    try:
        given = (group / "cgroup.controllers").read_text().split()
    except FileNotFoundError:
        return None
    uses = {use for controller, use in V2.controllers.items() if controller in given}
    return Trees(V2, dict.fromkeys((*uses, TIMES), group)) if uses >= {MEMORY, CPU} else None


def cpuset_tree(found: Trees, mounts: Path = Path("/proc/mounts")) -> Path | None:
    """Return the tree whose groups may have processors of their own (the controller cpuset), for who asks for it; None without one."""
    if found.version is V2:
        root = found.at[CPU]
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
    """Tell whether weights of disk access count on the disk that a folder is on; None when that cannot be known."""
    device = folder.stat().st_dev
    block = sys / "dev/block" / f"{os.major(device)}:{os.minor(device)}"
    for queue in (block / "queue/scheduler", block.resolve().parent / "queue/scheduler"):
        if queue.exists():
            return "[bfq]" in queue.read_text()
    return None
