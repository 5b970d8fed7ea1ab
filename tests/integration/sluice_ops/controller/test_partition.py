"""A controller whose ZooKeeper server is held apart from the other two: what it reads is old, and what it writes is refused."""

import sys
import threading
import time

import pytest

from sluice_ops.channel import Channel
from sluice_ops.controller.leader import Controller
from sluice_ops.controller.site_watcher import SiteWatcher
from sluice_ops.model import paths
from sluice_ops.model.change import EpochRecord
from tests.ensemble import Ensemble
from tests.integration.sluice_ops.controller.test_ensemble import PatientWorld, epoch
from tests.integration.sluice_ops.controller.test_leaders import Controllers, leader

pytestmark = pytest.mark.timeout(300)

APART = 3
ELSEWHERE = "locality: {counts: h3}\n"
"""What only the controller that is held apart has in its site file: it is its leader's to tell in the channel."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    made = Ensemble(tmp_path_factory.mktemp("ensemble"), linked=True, sync=40)
    try:
        made.wait_until_serving()
        assert made.leader() != APART
        made.make_path("/hits")
        yield made
    finally:
        made.stop()


@pytest.fixture
def chroot(servers, request):
    made = f"/hits/{request.node.name[:30]}"
    servers.make_path(made)
    yield made
    servers.release()


@pytest.fixture
def small(servers, chroot):
    """Where the server is that is held apart."""
    return f"127.0.0.1:{servers.clients[APART]}{chroot}"


@pytest.fixture
def large(servers, chroot, tmp_path):
    """The controllers of those that have the majority."""
    folder = tmp_path / "large"
    folder.mkdir()
    together = ",".join(f"127.0.0.1:{port}" for number, port in servers.clients.items() if number != APART)
    made = Controllers(together + chroot, folder)
    try:
        yield made
    finally:
        made.stop()
        sys.stdout.write((folder / "c2.log").read_text()[-3000:])


@pytest.fixture
def world(large):
    with Channel(large.address) as channel:
        yield PatientWorld(channel=channel)


def led_by_c1(world, large):
    """Wait until the pipeline runs, led by the one on the small side, and have another one stand by on the large one."""
    world.until_true(lambda: leader(world) == "c1", 60)
    world.want()
    world.until_true(world.all_well, 120)
    large.start("c2")
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)


def what_is_said(world):
    """Return what the leading controller has in the channel of its site file, and of its changes."""
    return world.channel.kazoo.get(paths.SITE)[0], world.channel.children(f"{paths.TRAIL}/controller")


def test_only_the_majority_side_of_a_partition_has_an_acting_controller(
    world, large, small, servers, tmp_path
):
    apart = Controllers(small, tmp_path)
    try:
        apart.start("c1")
        led_by_c1(world, large)
        first, said = epoch(world), what_is_said(world)
        servers.hold(APART, both_ways=True)
        parted = time.monotonic()
        world.until_true(lambda: leader(world) == "c2", 60)
        sys.stdout.write(f"another one leads {time.monotonic() - parted:.1f} s after the partition\n")
        world.kill_driver("enrich")
        world.until_true(lambda: world.owner("enrich").owner == 2 and world.all_well(), 60)
        apart.site.write_text(apart.site.read_text() + ELSEWHERE)
        log = apart.folder / "c1.log"
        world.until_true(lambda: "the site file has changed" in log.read_text(), 30)
        for _ in range(20):
            world.tick()
        servers.release()
        world.until_true(lambda: "does not lead: its ZooKeeper session has ended" in log.read_text(), 60)
        world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
        for _ in range(30):
            world.tick()
        assert what_is_said(world) == said
        assert (leader(world), epoch(world)) == ("c2", first + 1)
        assert apart.running["c1"].poll() is None, "it stands by again"
    finally:
        apart.stop()
        sys.stdout.write((tmp_path / "c1.log").read_text()[-3000:])


def test_what_a_controller_decides_on_what_is_no_longer_so_is_refused(world, large, small, servers, capsys):
    site = large.folder / "c1.yaml"
    site.write_text(large.site.read_text())
    book = SiteWatcher(site)
    with Channel(small, session_seconds=60) as own:  # ZooKeeper does not end its session meanwhile
        c1 = Controller(own, "c1", lambda: book.rules)
        thread = threading.Thread(target=c1.run)
        thread.start()
        try:
            led_by_c1(world, large)
            first, said = epoch(world), what_is_said(world)
            servers.hold(APART, both_ways=False)
            place = min(world.channel.children(paths.LEADER), key=lambda name: name[-10:])
            world.channel.kazoo.delete(f"{paths.LEADER}/{place}")
            world.until_true(lambda: leader(world) == "c2", 30)
            assert own.read(paths.EPOCH, EpochRecord).value.epoch == first, "what it reads is old"
            site.write_text(site.read_text() + ELSEWHERE)
            book.look()
            assert book.look()
            c1.wake()
            for _ in range(20):
                world.tick()
            servers.release()
            heard = []
            world.until_true(
                lambda: heard.append(capsys.readouterr().out) or "c2 has become leader" in "".join(heard),
                30,
            )
        finally:
            servers.release()
            c1.stop()
            thread.join(30)
    assert what_is_said(world) == said
    assert (leader(world), epoch(world)) == ("c2", first + 1)
    world.until_true(world.all_well, 30)
