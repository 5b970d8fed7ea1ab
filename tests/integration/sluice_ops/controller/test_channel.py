"""The channel and its mirror on a real ZooKeeper."""

import json
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient
from simulation.world import RULES

from sluice_ops.channel import (
    ANY_VERSION,
    Channel,
    ChannelAwayError,
    ConflictError,
    Guard,
    TooLargeError,
    Write,
)
from sluice_ops.controller import leader
from sluice_ops.controller.decide import Decision
from sluice_ops.controller.leader import Controller, Deposed
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.change import EpochRecord
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.resources import known
from sluice_ops.model.share import Layers
from sluice_ops.model.status import ControllerStatus, TierState, TierStatus
from sluice_ops.process import metrics_server
from sluice_ops.snapshot.mirror import Mirror
from sluice_ops.snapshot.view import read_view
from tests.scrape import scrape

pytestmark = pytest.mark.timeout(120)


def chroot(request):
    """Return the chroot of a test; a `/` in a parameter is replaced."""
    return request.node.name.replace("/", "-")[-40:]


@pytest.fixture
def channel(zookeeper, request):
    with Channel(f"{zookeeper}/{chroot(request)}") as connected:
        yield connected


def test_a_missing_chroot_is_told_apart_from_a_server_that_is_away(zookeeper):
    with pytest.raises(ChannelAwayError, match=r"ZooKeeper has no chroot .* yet"):
        Channel(f"{zookeeper}/nobody/made-it").start()


def test_a_multi_is_all_or_nothing(channel):
    channel.multi(
        [
            Write("/config/wanted/a", TierWanted(running=True), None),
            Write("/config/wanted/b", TierWanted(), None),
        ]
    )
    with pytest.raises(ConflictError, match=r"^/config/wanted/b: BadVersionError$"):
        channel.multi(
            [
                Write("/config/wanted/a", TierWanted(), 0),
                Write("/config/wanted/b", TierWanted(paused=True), 7),
            ]
        )
    with pytest.raises(ConflictError):
        channel.multi([Guard("/config/wanted/b", 3), Write("/config/wanted/a", TierWanted(), 0)])
    assert channel.read("/config/wanted/a", TierWanted).value.running
    with pytest.raises(ConflictError):
        channel.multi([Guard("/config/wanted/b", 3), Write("/config/wanted/a", TierWanted(), ANY_VERSION)])
    channel.multi(
        [Guard("/config/wanted/b", 0), Write("/config/wanted/a", TierWanted(paused=True), ANY_VERSION)]
    )
    assert channel.read("/config/wanted/a", TierWanted).value.paused
    channel.multi([Guard("/config/wanted/b", 0), Write("/config/wanted/a", None, 1)])
    assert channel.read("/config/wanted/a", TierWanted) is None


def test_nodes_keep_their_creation_order_when_they_are_rewritten(channel):
    for name in ("b", "a"):
        channel.put(f"/config/wanted/{name}", TierWanted())
    channel.put("/config/wanted/b", TierWanted(paused=True))
    assert (
        channel.read("/config/wanted/b", TierWanted).made < channel.read("/config/wanted/a", TierWanted).made
    )


def test_fields_of_a_newer_version_are_kept_when_a_node_is_rewritten(channel):
    channel.kazoo.create("/config/wanted/a", b'{"running": true, "colour": "blue"}', makepath=True)
    wanted = channel.read("/config/wanted/a", TierWanted).value
    assert known(wanted) == TierWanted(running=True)
    channel.put("/config/wanted/a", wanted.model_copy(update={"paused": True}))
    assert json.loads(channel.kazoo.get("/config/wanted/a")[0]) == {
        "running": True,
        "paused": True,
        "colour": "blue",
    }
    channel.kazoo.set("/config/wanted/a", b'{"running": "perhaps"}')
    assert channel.read("/config/wanted/a", TierWanted) is None


EMPTIED_PATHS = [paths.assignment("h1"), paths.host_record("h1"), paths.LAYERS, paths.LOCK, paths.HOLDS]


@pytest.mark.parametrize("path", EMPTIED_PATHS)
def test_an_empty_node_does_not_count_as_a_missing_node(channel, path):
    controller = Controller(channel, "c1", lambda: RULES)
    term = controller._become_leader(channel.session)
    controller._pass(term)
    channel.kazoo.create(path, b"", makepath=True)
    new = Controller(channel, "c2", lambda: RULES)
    term = new._become_leader(channel.session)
    for _ in range(2):
        new._pass(term)
    assert path in channel.refused
    status = channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value
    assert status.sentence.startswith(f"decides nothing: {path} cannot be read; ")
    channel.delete(path)
    assert channel.read(path, Layers) is None
    assert path not in channel.refused


def test_an_unreadable_epoch_is_replaced_and_older_leaders_are_fenced(channel):
    old = Controller(channel, "c1", lambda: RULES)
    term = old._become_leader(channel.session)
    old._pass(term)
    channel.kazoo.set(paths.EPOCH, b"")
    new = Controller(channel, "c2", lambda: RULES)
    after = new._become_leader(channel.session)
    assert (after.epoch, channel.read(paths.EPOCH, EpochRecord).value) == (
        2,
        EpochRecord(epoch=2, leader="c2"),
    )
    new._pass(after)
    with pytest.raises(ConflictError):
        channel.multi([Guard(paths.EPOCH, term.version), Write(paths.LAYERS, Layers(), None)])
    with pytest.raises(Deposed, match="c2 has become leader"):
        old._resolve_conflict(term, ConflictError())


def test_a_node_too_large_for_zookeeper_is_refused_by_name(channel):
    large = TierWanted(by="x" * 1_000_000)
    for send in (
        lambda: channel.put(paths.wanted("a"), large),
        lambda: channel.create(paths.wanted("a"), large),
        lambda: channel.multi(
            [Write(paths.wanted("b"), TierWanted(), None), Write(paths.wanted("a"), large, None)]
        ),
    ):
        with pytest.raises(
            TooLargeError,
            match=r"^/config/wanted/a would have 1,000,009 bytes(, with other nodes in the same request)?: "
            "ZooKeeper accepts 1,000,000",
        ):
            send()
    assert channel.children("/config/wanted") == []
    channel.put(paths.wanted("a"), TierWanted(by="x" * 999_991))


def test_a_status_too_large_for_zookeeper_is_cut_and_the_leader_leads(channel, monkeypatch):
    tiers = {
        f"t{number}": TierStatus(state=TierState.FAILED, sentence="has failed", error="x" * 10_000)
        for number in range(200)
    }
    monkeypatch.setattr(leader, "decide", lambda *_: Decision((), "x" * 2_000_000, tiers, under_way=False))
    controller = Controller(channel, "c1", lambda: RULES)
    term = controller._become_leader(channel.session)
    controller._pass(term)
    versioned = channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
    assert versioned.value.sentence.startswith(
        "the status is too long for /controller/status and was cut short: xxx"
    )
    assert versioned.value.tiers["t199"] == TierStatus(state=TierState.FAILED, sentence="has failed")
    controller._pass(term)
    assert channel.read(paths.CONTROLLER_STATUS, ControllerStatus) == versioned, (
        "the same status is not written again"
    )


def test_a_write_too_large_is_named_in_the_status_and_the_leader_stays(channel, monkeypatch):
    passes = []

    def decide(*_):
        passes.append(None)
        if len(passes) == 3:
            controller.stop()
        return Decision(
            (Write(paths.LAYERS, TierWanted(by="x" * 1_000_000), None),), "sets a number", {}, under_way=False
        )

    monkeypatch.setattr(leader, "decide", decide)
    monkeypatch.setattr(leader, "FAILED_SECONDS", 0.1)
    controller = Controller(channel, "c1", lambda: RULES)
    controller.run()
    status = channel.read(paths.CONTROLLER_STATUS, ControllerStatus).value
    assert status.sentence.startswith(
        "decides nothing: controller c1 failed and retries; for the full error: "
        "sluice logs controller; error: "
    )
    assert "TooLargeError: /config/layers would have 1,000,009 bytes" in status.sentence
    assert channel.read(paths.EPOCH, EpochRecord).value.epoch == 1


def test_a_host_about_to_register_is_readable_and_an_emptied_node_is_not(
    channel,
):
    path = paths.host("h1")
    facts = HostFacts(name="h1", address="127.0.1.1", zone="onprem", cpu=1, memory=1)
    channel.create(paths.live("h1"), facts, ephemeral=True)  # creates the host's node as a parent
    assert read_view(Mirror(channel)).unread_hosts == {}
    channel.put(path, facts)
    assert read_view(Mirror(channel)).hosts["h1"].facts == facts
    channel.kazoo.set(path, b"")
    assert read_view(Mirror(channel)).unread_hosts == {"h1": path}


@pytest.fixture
def default_ctrl_c():
    """Set Python's default handler of Ctrl-C, because a Spark session in this process may have set
    its own.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_during_a_request_does_not_count_as_a_channel_that_is_away(channel, monkeypatch):
    send = channel.kazoo._connection._write_sock.send

    def interrupted_send(data):
        signal.raise_signal(signal.SIGINT)
        return send(data)

    with monkeypatch.context() as patch:
        patch.setattr(channel.kazoo._connection, "_write_sock", SimpleNamespace(send=interrupted_send))
        with pytest.raises(KeyboardInterrupt):
            channel.read("/config/wanted/a", TierWanted)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert channel.read("/config/wanted/a", TierWanted) is None


def test_the_mirror_rereads_changes_and_keeps_the_last_good_value(channel, zookeeper, request):
    mirror, woken = Mirror(channel), threading.Event()
    channel.on_wake(woken.set)
    path = paths.wanted("counts")
    assert mirror.read(path, TierWanted, watch=True) is None
    assert mirror.children("/config/wanted", watch=True) == []
    with Channel(f"{zookeeper}/{chroot(request)}") as other:
        for paused in (True, False):
            woken.clear()
            other.put(path, TierWanted(paused=paused))
            assert woken.wait(10)
            pause = threading.Event()
            for _ in range(100):
                versioned = mirror.read(path, TierWanted, watch=True)
                if versioned is not None and versioned.value.paused is paused:
                    break
                pause.wait(0.05)
            assert versioned.value.paused is paused
        assert mirror.children("/config/wanted", watch=True) == ["counts"]
        woken.clear()
        other.kazoo.set(path, b"{broken")
        assert woken.wait(10)
        pause.wait(0.2)
        assert mirror.read(path, TierWanted, watch=True).value.paused is False
        woken.clear()
        other.delete(path)
        assert woken.wait(10)
        pause.wait(0.2)
        assert mirror.read(path, TierWanted, watch=True) is None


class NoMetrics:
    """A process without metrics of its own."""

    def collect(self):
        return []


def test_exporters_are_announced_again_after_the_session_ends(channel, zookeeper):
    metrics_server.serve(channel, Exporter(role=Role.AGENT, address="127.0.1.1:0", host="h1"), NoMetrics())
    before = _announced(channel, set())
    assert scrape(metrics_server.exporters(channel)[0])["sluice_channel_connected"] == 1
    end_session(channel, zookeeper)
    after = _announced(channel, before)
    assert len(after) == 1
    assert metrics_server.exporters(channel)[0].address.startswith("127.0.1.1:")


def end_session(channel, zookeeper):
    """End the session of a channel from another client."""
    other = KazooClient(zookeeper, client_id=channel.kazoo.client_id)
    other.start()
    other.stop()  # ends the session, which both clients share
    other.close()


def _announced(channel, before):
    """Wait until exporters are announced, and none of those in `before`."""
    deadline = time.monotonic() + 30
    while True:
        announced = set(channel.children(paths.EXPORTERS)) if channel.connected else set()
        if announced and not announced & before:
            return announced
        assert time.monotonic() < deadline, announced
        time.sleep(0.05)
