"""The part of control groups version 2 that was handed to this agent, so that it needs no root: systemd does so for `Delegate=yes`.

A group that holds processes cannot hand controllers down, and one that process_control controllers down takes no process in. So whoever starts
agents puts each into a group `agent` below the delegated one (systemd: `DelegateSubgroup=agent`), beside the units of those before it.
An agent that moved there by itself would lock the next one out for as long as a unit runs.
"""

import os
from pathlib import Path

AGENTS = "agent"
"""The group that agents are started in, below the delegated one."""


def delegated(tree: Path, membership: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the group below `tree` that this process may divide among units; None when nobody has handed it one."""
    own = next(
        (line.removeprefix("0::") for line in membership.read_text().splitlines() if line.startswith("0::")),
        "/",
    )
    group = tree / own.lstrip("/")
    if group.name != AGENTS:
        return None
    needed = (group.parent, *(group.parent / name for name in ("cgroup.procs", "cgroup.subtree_control")))
    return group.parent if all(os.access(path, os.W_OK) for path in needed) else None
