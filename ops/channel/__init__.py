"""The control channel over ZooKeeper: typed reads, guarded writes, wake-ups. Raw znodes go no further than this package."""

from ops.channel.client import Channel, ChannelAwayError, ConflictError, Guard, NotAllowedError, Read, Write

__all__ = ["Channel", "ChannelAwayError", "ConflictError", "Guard", "NotAllowedError", "Read", "Write"]
