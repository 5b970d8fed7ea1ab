"""The memory of each service, including its child processes: proportional set size (PSS)."""

import os
from collections import defaultdict
from pathlib import Path

import psutil

from sluice_ops.local.layout import Layout
from sluice_ops.local.processes import processes

MEBIBYTE = 1024 * 1024
BUDGET = 10 * 1024
"""The most MiB that the whole platform should take."""


def resident_share(pid: int) -> int:
    """Return a process's PSS in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def by_service(layout: Layout) -> dict[str, int]:
    """Return the MiB of each service, slot and driver, the largest first."""
    sizes: dict[str, int] = defaultdict(int)
    for process, name in processes(layout).items():
        try:
            sizes[name] += resident_share(process.pid)
        except (OSError, psutil.Error):
            continue
    return {name: size // MEBIBYTE for name, size in sorted(sizes.items(), key=lambda item: -item[1])}


def available() -> int:
    """Return the free MiB: the lower of the machine's and its container's."""
    free = psutil.virtual_memory().available
    for limit, usage in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        root = Path("/sys/fs/cgroup")
        try:
            free = min(free, int((root / limit).read_text()) - int((root / usage).read_text()))
        except (OSError, ValueError):
            continue
    return free // MEBIBYTE


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
