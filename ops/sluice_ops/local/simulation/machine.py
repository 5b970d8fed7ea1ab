"""The needs of a simulation: memory, sessions and open files. `run` checks them at its start."""

import resource

from sluice_ops.local.memory import available
from sluice_ops.local.simulation.cluster import Size
from sluice_ops.site.installation import PlatformError

SESSIONS = 200
"""The most sessions of the simulated agents: each session has three Python threads."""
OTHER_DESCRIPTORS = 200
"""Open files of the agents' process besides those of its sessions."""


def sessions(size: Size) -> int:
    """Return the number of sessions of the simulated agents."""
    return min(SESSIONS, size.hosts)


def heap(size: Size) -> int:
    """Return the MiB of heap for ZooKeeper.

    This is enough for the nodes and watches of each host and slot twice, because the garbage
    collector copies them.
    """
    return 128 + size.hosts // 32 + size.slots // 256


def memory(size: Size) -> int:
    """Return the MiB for ZooKeeper, two controllers, the agents and the measuring process."""
    return heap(size) + 100 + 4 * (100 + size.hosts // 64 + size.slots // 400)


def check(size: Size) -> None:
    """Raise PlatformError if this machine is too small for the simulation."""
    needed, free = memory(size), available()
    if free < needed:
        message = (
            f"{size.hosts} hosts need about {needed} MiB, but {free} MiB are free: "
            "simulate fewer hosts, or stop other programs"
        )
        raise PlatformError(message)
    descriptors = sessions(size) * 3 + OTHER_DESCRIPTORS
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < descriptors:
        message = (
            f"{sessions(size)} sessions need {descriptors} open files, but `ulimit -n` is {limit}: "
            f"first run `ulimit -n {descriptors}`"
        )
        raise PlatformError(message)
