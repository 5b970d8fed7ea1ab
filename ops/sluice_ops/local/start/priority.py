"""Who comes first when the processors are busy: control groups for what runs under supervisord, beside the hosts' units.

The kernel divides the processors between sessions before it looks at `nice`, and everything under supervisord is one session: Kafka would
wait behind Airflow's imports, and all of them together behind the units. So what records go through has a group of its own, and what gives
way has a small one. Without root or writable groups only `nice` is left.
"""

import os
from contextlib import suppress
from pathlib import Path

from sluice_ops.agent.limits.control_group_trees import CPU, V2, find_trees
from sluice_ops.agent.limits.control_groups import installation_group
from sluice_ops.local.layout import Layout

SERVICES, BACKGROUND = "services", "background"
SHARES = {SERVICES: 1.0, BACKGROUND: 0.25}
"""What each group weighs, against all units of the machine together."""
_JOIN = 'echo $$ > "$0"; exec "$@"'


def prepare(where: Layout, mounts: Path = Path("/proc/mounts")) -> None:
    """Make the groups, where this user may."""
    found = find_trees(mounts)
    if found is None:
        return
    version, root = found.version, found.at[CPU]
    with suppress(OSError):
        if version is V2:
            (root / "cgroup.subtree_control").write_text(found.handed_down())
        for name, share in SHARES.items():
            group = _group(where, name, root)
            group.mkdir(exist_ok=True)
            (group / version.weight).write_text(str(int(share * version.core * (os.cpu_count() or 1))))


def remove(where: Layout, mounts: Path = Path("/proc/mounts")) -> None:
    """Remove the groups once they are empty."""
    if (found := find_trees(mounts)) is not None:
        for name in SHARES:
            with suppress(OSError):
                _group(where, name, found.at[CPU]).rmdir()


def in_group(
    where: Layout, name: str, command: tuple[str, ...], mounts: Path = Path("/proc/mounts")
) -> tuple[str, ...]:
    """Return a command that starts `command`, and with it all that it starts, in a group."""
    if (found := find_trees(mounts)) is None:
        return command
    joins = _group(where, name, found.at[CPU]) / "cgroup.procs"
    return ("sh", "-c", _JOIN, str(joins), *command) if os.access(joins, os.W_OK) else command


def niced(where: Layout, command: tuple[str, ...], nice: int) -> tuple[str, ...]:
    """Return a command that starts `command` so that it gives way by `nice`, in the background if that is above 0."""
    if nice > 0:
        return in_group(where, BACKGROUND, ("nice", "-n", str(nice), *command))
    return ("nice", "-n", str(nice), *command) if nice < 0 and os.geteuid() == 0 else command


def _group(where: Layout, name: str, root: Path) -> Path:
    return root / f"{installation_group(where.home)}.{name}"
