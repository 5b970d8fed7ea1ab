"""Requests to ZooKeeper time out: the test's own server accepts connections, keeps sessions alive
and answers no request.
"""

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


def with_length(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def read_message(caller: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", caller.recv(4, socket.MSG_WAITALL))
    return caller.recv(size, socket.MSG_WAITALL)


def answer_pings_only(listener: socket.socket) -> None:
    caller, _ = listener.accept()
    with caller:
        read_message(caller)
        caller.sendall(with_length(SESSION))
        while True:
            try:
                xid, kind = struct.unpack(">ii", read_message(caller)[:8])
            except struct.error:
                return
            if xid == PING_XID and kind == PING:
                caller.sendall(with_length(struct.pack(">iqi", xid, 0, 0)))
            elif kind < 0:
                return  # the session is closed


def answer_wrong_request(listener: socket.socket) -> None:
    """Answer the first request with the number of another request."""
    caller, _ = listener.accept()
    with caller:
        read_message(caller)
        caller.sendall(with_length(SESSION))
        read_message(caller)
        caller.sendall(with_length(struct.pack(">iqi", 4711, 0, 0)))
        caller.recv(1)


def test_a_server_that_drops_all_packets_takes_only_its_share_of_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        callers = [socket.socket() for _ in range(4)]
        try:
            for caller in callers:  # fill the accept queue, so that the next packets are dropped
                caller.settimeout(0)
                caller.connect_ex(silent.getsockname())
            client = connection.Connection("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", None, timeout=6.0)
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                client.handler.create_connection(address=silent.getsockname(), timeout=1.5)
            assert time.monotonic() - began < 1.0
        finally:
            for caller in callers:
                caller.close()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """Connect to a server that answers no request."""
    monkeypatch.setattr(connection, "CALL_SECONDS", SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_pings_only, args=(listener,))
        thread.start()
        channel = Channel(f"127.0.0.1:{listener.getsockname()[1]}")
        channel.kazoo.start()
        yield channel
        channel.stop()
        thread.join()


@pytest.mark.parametrize(
    "send",
    [
        lambda kazoo: kazoo.get("/a"),
        lambda kazoo: kazoo.create("/a", makepath=True),
        lambda kazoo: kazoo.ensure_path("/a"),
        lambda kazoo: kazoo.delete("/a", recursive=True),
        lambda kazoo: kazoo.transaction().commit(),
        lambda kazoo: kazoo.get_async("/a").get(),
    ],
)
def test_a_missing_answer_counts_as_a_lost_connection(
    silent: Channel, send: Callable[[connection.Connection], object]
) -> None:
    with pytest.raises(ConnectionLoss):
        send(silent.kazoo)


def test_waiting_for_the_leaders_lock_times_out(silent: Channel) -> None:
    lock = silent.kazoo.Lock("/lock", "me")
    try:
        assert not lock.acquire(timeout=SECONDS)
    except KazooException:
        assert not lock.is_acquired


def test_a_channel_without_answers_counts_as_away(silent: Channel, tmp_path: Path) -> None:
    presence = Presence(silent, FACTS, tmp_path, 1)
    for send in (
        lambda: silent.delete("/a"),
        lambda: silent.exists("/a"),
        presence.ensure,
        lambda: access_lists.apply(silent.kazoo),
    ):
        with pytest.raises(ChannelAwayError):
            send()


def test_a_wrong_answer_ends_the_connection_and_not_the_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CALL_SECONDS", SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(
            target=lambda: (answer_wrong_request(listener), answer_pings_only(listener))
        )
        thread.start()
        channel = Channel(f"127.0.0.1:{listener.getsockname()[1]}")
        reconnected = threading.Event()
        channel.kazoo.start()
        channel.kazoo.add_listener(lambda state: reconnected.set() if state == KazooState.CONNECTED else None)
        with pytest.raises(ChannelAwayError):
            channel.exists("/a")
        assert reconnected.wait(10)
        channel.stop()
        thread.join()
