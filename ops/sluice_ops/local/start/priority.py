"""Control groups that let services such as Kafka go first when the processors are busy.

The kernel divides processors between sessions before it applies `nice`, and all programs under
supervisord are one session. Without groups, Kafka would wait for Airflow's imports, and all
services together for slots and drivers. So services that records pass through have their own group,
and background programs have a small one. Without root or writable groups, only `nice` works.
"""

import os
from contextlib import suppress
from pathlib import Path

from sluice_ops.agent.limits.control_group_trees import CPU, V2, find_trees
from sluice_ops.agent.limits.control_groups import installation_group
from sluice_ops.local.layout import Layout

SERVICES, BACKGROUND = "services", "background"
SHARES = {SERVICES: 1.0, BACKGROUND: 0.25}
"""The weight of each group, relative to all slots and drivers of the machine together."""
_JOIN = 'echo $$ > "$0"; exec "$@"'


def prepare(layout: Layout, mounts: Path = Path("/proc/mounts")) -> None:
    """Create the groups, if this user may."""
    trees = find_trees(mounts)
    if trees is None:
        return
    version, root = trees.version, trees.at[CPU]
    with suppress(OSError):
        if version is V2:
            (root / "cgroup.subtree_control").write_text(trees.subtree_control())
        for name, share in SHARES.items():
            group = _group(layout, name, root)
            group.mkdir(exist_ok=True)
            (group / version.weight).write_text(
                str(int(share * version.weight_of_core * (os.cpu_count() or 1)))
            )


def remove(layout: Layout, mounts: Path = Path("/proc/mounts")) -> None:
    """Remove the groups that are empty."""
    if (trees := find_trees(mounts)) is not None:
        for name in SHARES:
            with suppress(OSError):
                _group(layout, name, trees.at[CPU]).rmdir()


def in_group(
    layout: Layout, name: str, command: tuple[str, ...], mounts: Path = Path("/proc/mounts")
) -> tuple[str, ...]:
    """Return a command that runs `command` and its children in a group.

    The command is unchanged if this user may not use the group.
    """
    if (trees := find_trees(mounts)) is None:
        return command
    procs = _group(layout, name, trees.at[CPU]) / "cgroup.procs"
    return ("sh", "-c", _JOIN, str(procs), *command) if os.access(procs, os.W_OK) else command


def niced(layout: Layout, command: tuple[str, ...], nice: int) -> tuple[str, ...]:
    """Return a command that runs `command` with this niceness; above 0 in the background group.

    A niceness below 0 needs root; without root, the command is unchanged.
    """
    if nice > 0:
        return in_group(layout, BACKGROUND, ("nice", "-n", str(nice), *command))
    return ("nice", "-n", str(nice), *command) if nice < 0 and os.geteuid() == 0 else command


def _group(layout: Layout, name: str, root: Path) -> Path:
    return root / f"{installation_group(layout.home)}.{name}"
