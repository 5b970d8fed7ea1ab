"""The connection of a command to the channel."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from sluice_ops.channel import Channel
from sluice_ops.model.access import Role
from sluice_ops.site import endpoints

CONNECT_SECONDS = 3.0


@contextmanager
def open_channel() -> Iterator[Channel]:
    """Connect to the channel; ChannelAwayError if ZooKeeper does not answer within 3 seconds."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="No chroot path exists")
    where = endpoints.load()
    channel = Channel(where.zookeeper, where.credential(Role.OPERATOR)).start(seconds=CONNECT_SECONDS)
    try:
        yield channel
    finally:
        channel.stop()
