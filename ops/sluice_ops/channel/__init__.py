"""The control channel over ZooKeeper: typed reads, guarded writes, wake-ups. Raw znodes go no further than this package."""

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
