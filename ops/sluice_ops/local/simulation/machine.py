"""What a simulation takes of the machine, and whether it is there: asked before anything is started. Called by `run`."""

import resource

from sluice_ops.local.memory import available
from sluice_ops.local.simulation.cluster import Size
from sluice_ops.site.installation import PlatformError

SESSIONS = 200
"""Connections of the simulated agents at most: one is three threads of Python."""
DESCRIPTORS_BESIDE = 200


def sessions(size: Size) -> int:
    """Return how many connections stand for the hosts."""
    return min(SESSIONS, size.hosts)


def heap(size: Size) -> int:
    """Return MiB of heap for ZooKeeper: nodes and watches of each host and slot, twice over, for the collector copies."""
    return 128 + size.hosts // 32 + size.slots // 256


def memory(size: Size) -> int:
    """Return MiB for everything: ZooKeeper, two controllers, the agents and the measuring process."""
    return heap(size) + 100 + 4 * (100 + size.hosts // 64 + size.slots // 400)


def check(size: Size) -> None:
    """Refuse to start what this machine cannot carry."""
    needed, free = memory(size), available()
    if free < needed:
        message = f"{size.hosts} hosts take about {needed} MiB, {free} MiB are free: simulate fewer hosts or stop something"
        raise PlatformError(message)
    descriptors, (soft, _) = (
        sessions(size) * 3 + DESCRIPTORS_BESIDE,
        resource.getrlimit(resource.RLIMIT_NOFILE),
    )
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        message = f"{sessions(size)} sessions take {descriptors} open files in one process, `ulimit -n` is {soft}: set it to {descriptors} first"
        raise PlatformError(message)
