"""The way from Airflow to the control channel: opens it, keeps one open for long-lived processes, and decides nothing."""

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
"""How long a task waits for ZooKeeper before it is retried."""
SHARED_CONNECT_SECONDS = 3.0
"""The same for the triggerer and the page, which ask again soon."""

logging.getLogger("kazoo").setLevel(
    logging.WARNING
)  # a task's log is an operator's: that a connection was opened is no news


def connection() -> Channel:
    """Prepare a connection to the channel that the endpoints file names, with the rights of runbooks."""
    where = endpoints.load()
    return Channel(where.zookeeper, where.credential(Role.OPERATOR))


class ChannelHook(BaseHook):
    """A connection of a task's own, for as long as it needs it."""

    @contextmanager
    def open(self) -> Iterator[Channel]:
        """Connect to the channel that the endpoints file names, and disconnect at the end."""
        channel = connection().start(seconds=CONNECT_SECONDS)
        try:
            yield channel
        finally:
            channel.stop()


class SharedChannel:
    """The one connection of a long-lived process (the triggerer, the API server): made when first asked for, and kept.

    kazoo reconnects by itself; a first connection that fails is tried again by the next caller.
    """

    def __init__(self) -> None:
        """Do nothing yet: the process that imports this is not always the one that asks."""
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._bells: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def get(self) -> Channel:
        """Return the connected channel, from any thread; ChannelAwayError when it is not there, or being connected by another."""
        if self._channel is not None:
            return self._channel
        if not self._lock.acquire(blocking=False):
            message = "ZooKeeper is being connected to"
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
        """Disconnect; the next caller connects anew."""
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
        """Give an event of the running loop that is set whenever something watched, or the connection, has changed."""
        bell = asyncio.Event()
        self._bells[bell] = asyncio.get_running_loop()
        try:
            yield bell
        finally:
            del self._bells[bell]


shared = SharedChannel()
"""This process's own."""
