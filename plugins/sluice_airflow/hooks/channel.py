"""Connections from Airflow to the control channel: one per task, and one shared by each long-lived
process.
"""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk import BaseHook

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model.access import Role
from sluice_ops.site import endpoints

CONNECT_SECONDS = 10.0
"""How long a task waits for ZooKeeper before Airflow retries the task."""
SHARED_CONNECT_SECONDS = 3.0
"""How long the triggerer and the page wait for ZooKeeper; both ask again soon."""

# operators read the task's log: an opened connection is no news to them
logging.getLogger("kazoo").setLevel(logging.WARNING)


def connection() -> Channel:
    """Return an unconnected channel to the endpoints file's ZooKeeper, with the operator's
    credential.
    """
    where = endpoints.load()
    return Channel(where.zookeeper, where.credential(Role.OPERATOR))


class ChannelHook(BaseHook):
    """A task's own connection to the control channel."""

    @contextmanager
    def open(self) -> Iterator[Channel]:
        """Connect to the endpoints file's ZooKeeper, and disconnect at the end."""
        channel = connection().start(seconds=CONNECT_SECONDS)
        try:
            yield channel
        finally:
            channel.stop()


class SharedChannel:
    """The one connection of a long-lived process: the triggerer or the API server.

    The first caller connects, and later callers share the connection. kazoo reconnects by itself.
    If the first connection fails, the next caller tries again.
    """

    def __init__(self) -> None:
        """Connect later: many processes import this module, and few of them need the channel."""
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._bells: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def get(self) -> Channel:
        """Return the connected channel; any thread may call this.

        Raise ChannelAwayError if ZooKeeper does not answer, or while another thread connects.
        """
        if self._channel is not None:
            return self._channel
        if not self._lock.acquire(blocking=False):
            message = "another thread is connecting to ZooKeeper"
            raise ChannelAwayError(message)
        try:
            if self._channel is None:
                channel = connection()
                channel.on_wake(self._ring)
                self._channel = channel.start(seconds=SHARED_CONNECT_SECONDS)
            return self._channel
        finally:
            self._lock.release()

    def close(self) -> None:
        """Disconnect; the next caller connects again."""
        with self._lock:
            if self._channel is not None:
                self._channel.stop()
                self._channel = None

    def _ring(self) -> None:
        for bell, loop in list(self._bells.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(bell.set)

    @contextmanager
    def bell(self) -> Iterator[asyncio.Event]:
        """Yield an event of the running loop; it is set when a watched node or the connection
        changes.
        """
        bell = asyncio.Event()
        self._bells[bell] = asyncio.get_running_loop()
        try:
            yield bell
        finally:
            del self._bells[bell]


shared = SharedChannel()
"""This process's connection."""
