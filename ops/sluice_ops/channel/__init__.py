"""The control channel over ZooKeeper: typed reads, guarded writes, wake-ups.

Only this package handles raw ZooKeeper nodes. Start with `client`, whose class `Channel` all
processes use. `connection` adapts kazoo, `access_lists` checks the lists, and `trail_queue` holds
entries of the trail.
"""

from sluice_ops.channel.client import (
    ANY_VERSION,
    Channel,
    ChannelAwayError,
    ConflictError,
    Guard,
    NotAllowedError,
    Read,
    TooLargeError,
    Write,
)

__all__ = [
    "ANY_VERSION",
    "Channel",
    "ChannelAwayError",
    "ConflictError",
    "Guard",
    "NotAllowedError",
    "Read",
    "TooLargeError",
    "Write",
]
