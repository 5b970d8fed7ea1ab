"""No request waits for ever for its answer: a server of the test's own takes connections and keeps sessions, and answers nothing else."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.exceptions import ConnectionLoss, KazooException
from kazoo.protocol.states import KazooState

from sluice_ops.agent.host.presence import Presence
from sluice_ops.channel import Channel, ChannelAwayError, access_lists, connection
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.ids import HostName

SECONDS = 0.2
PING, PING_XID = 11, -2
SESSION = struct.pack(">iiqi16sx", 0, 6000, 1, 16, b"")
FACTS = HostFacts(name=HostName("h1"), address="127.0.0.1", zone="onprem", cpu=1, memory=1)


def framed(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def received(caller: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", caller.recv(4, socket.MSG_WAITALL))
    return caller.recv(size, socket.MSG_WAITALL)


def serve(listener: socket.socket) -> None:
    caller, _ = listener.accept()
    with caller:
        received(caller)
        caller.sendall(framed(SESSION))
        while True:
            try:
                xid, kind = struct.unpack(">ii", received(caller)[:8])
            except struct.error:
                return
            if xid == PING_XID and kind == PING:
                caller.sendall(framed(struct.pack(">iqi", xid, 0, 0)))
            elif kind < 0:
                return  # it is closed


def confuse(listener: socket.socket) -> None:
    """Answer the first request with another one's number."""
    caller, _ = listener.accept()
    with caller:
        received(caller)
        caller.sendall(framed(SESSION))
        received(caller)
        caller.sendall(framed(struct.pack(">iqi", 4711, 0, 0)))
        caller.recv(1)


def test_a_server_that_drops_all_packets_takes_only_its_share_of_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        callers = [socket.socket() for _ in range(4)]
        try:
            for (
                caller
            ) in callers:  # they fill the queue of those who wait, so that the next packets are dropped
                caller.settimeout(0)
                caller.connect_ex(silent.getsockname())
            made = connection.Connection("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", None, timeout=6.0)
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                made.handler.create_connection(address=silent.getsockname(), timeout=1.5)
            assert time.monotonic() - began < 1.0
        finally:
            for caller in callers:
                caller.close()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """Connect to a server that answers nothing."""
    monkeypatch.setattr(connection, "CALL_SECONDS", SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        channel = Channel(f"127.0.0.1:{listener.getsockname()[1]}")
        channel.kazoo.start()
        yield channel
        channel.stop()
        thread.join()


@pytest.mark.parametrize(
    "ask",
    [
        lambda kazoo: kazoo.get("/a"),
        lambda kazoo: kazoo.create("/a", makepath=True),
        lambda kazoo: kazoo.ensure_path("/a"),
        lambda kazoo: kazoo.delete("/a", recursive=True),
        lambda kazoo: kazoo.transaction().commit(),
        lambda kazoo: kazoo.get_async("/a").get(),
    ],
)
def test_an_answer_that_does_not_come_is_a_connection_that_is_lost(
    silent: Channel, ask: Callable[[connection.Connection], object]
) -> None:
    with pytest.raises(ConnectionLoss):
        ask(silent.kazoo)


def test_the_leaders_lock_is_not_waited_for_longer(silent: Channel) -> None:
    lock = silent.kazoo.Lock("/lock", "me")
    try:
        assert not lock.acquire(timeout=SECONDS)
    except KazooException:
        assert not lock.is_acquired


def test_the_channel_counts_as_away(silent: Channel, tmp_path: Path) -> None:
    presence = Presence(silent, FACTS, tmp_path, 1)
    for ask in (
        lambda: silent.delete("/a"),
        lambda: silent.exists("/a"),
        presence.ensure,
        lambda: access_lists.apply(silent.kazoo),
    ):
        with pytest.raises(ChannelAwayError):
            ask()


def test_an_unknown_answer_ends_the_connection_and_not_the_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CALL_SECONDS", SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: (confuse(listener), serve(listener)))
        thread.start()
        channel = Channel(f"127.0.0.1:{listener.getsockname()[1]}")
        again = threading.Event()
        channel.kazoo.start()
        channel.kazoo.add_listener(lambda state: again.set() if state == KazooState.CONNECTED else None)
        with pytest.raises(ChannelAwayError):
            channel.exists("/a")
        assert again.wait(10)
        channel.stop()
        thread.join()
