"""A controller whose ZooKeeper server is cut off from the other two: its reads are old, and its
writes are refused.
"""

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

CUT_OFF = 3
OWN_RULE = "locality: {counts: h3}\n"
"""A rule in the site file of the cut-off controller alone.

Only a leader publishes its site file in the channel.
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    started = Ensemble(tmp_path_factory.mktemp("ensemble"), linked=True, sync=40)
    try:
        started.wait_until_serving()
        assert started.leader() != CUT_OFF
        started.make_path("/hits")
        yield started
    finally:
        started.stop()


@pytest.fixture
def chroot(servers, request):
    test_chroot = f"/hits/{request.node.name[:30]}"
    servers.make_path(test_chroot)
    yield test_chroot
    servers.release()


@pytest.fixture
def small(servers, chroot):
    """Return the address of the cut-off server."""
    return f"127.0.0.1:{servers.clients[CUT_OFF]}{chroot}"


@pytest.fixture
def large(servers, chroot, tmp_path):
    """Return the controllers on the side of the majority."""
    folder = tmp_path / "large"
    folder.mkdir()
    majority = ",".join(f"127.0.0.1:{port}" for number, port in servers.clients.items() if number != CUT_OFF)
    processes = Controllers(majority + chroot, folder)
    try:
        yield processes
    finally:
        processes.stop()
        sys.stdout.write((folder / "c2.log").read_text()[-3000:])


@pytest.fixture
def world(large):
    with Channel(large.address) as channel:
        yield PatientWorld(channel=channel)


def run_led_by_c1(world, large):
    """Run the pipeline with the leader on the cut-off server, and a standby on the majority."""
    world.until_true(lambda: leader(world) == "c1", 60)
    world.want()
    world.until_true(world.all_well, 120)
    large.start("c2")
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)


def published_state(world):
    """Return the leader's site file and changes, as published in the channel."""
    return world.channel.kazoo.get(paths.SITE)[0], world.channel.children(f"{paths.TRAIL}/controller")


def test_only_the_majority_side_of_a_partition_has_an_acting_controller(
    world, large, small, servers, tmp_path
):
    cut_off = Controllers(small, tmp_path)
    try:
        cut_off.start("c1")
        run_led_by_c1(world, large)
        first, published = epoch(world), published_state(world)
        servers.hold(CUT_OFF, both_ways=True)
        parted_at = time.monotonic()
        world.until_true(lambda: leader(world) == "c2", 60)
        sys.stdout.write(
            f"another controller leads {time.monotonic() - parted_at:.1f} s after the partition\n"
        )
        world.kill_driver("enrich")
        world.until_true(lambda: world.owner("enrich").owner == 2 and world.all_well(), 60)
        cut_off.site.write_text(cut_off.site.read_text() + OWN_RULE)
        log = cut_off.folder / "c1.log"
        world.until_true(lambda: "the site file has changed" in log.read_text(), 30)
        for _ in range(20):
            world.tick()
        servers.release()
        world.until_true(lambda: "does not lead: its ZooKeeper session has ended" in log.read_text(), 60)
        world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
        for _ in range(30):
            world.tick()
        assert published_state(world) == published
        assert (leader(world), epoch(world)) == ("c2", first + 1)
        assert cut_off.running["c1"].poll() is None, "c1 stands by again"
    finally:
        cut_off.stop()
        sys.stdout.write((tmp_path / "c1.log").read_text()[-3000:])


def test_a_decision_on_old_data_is_refused(world, large, small, servers, capsys):
    site = large.folder / "c1.yaml"
    site.write_text(large.site.read_text())
    site_watcher = SiteWatcher(site)
    with Channel(small, session_seconds=60) as own:  # so that ZooKeeper does not end its session meanwhile
        c1 = Controller(own, "c1", lambda: site_watcher.rules)
        thread = threading.Thread(target=c1.run)
        thread.start()
        try:
            run_led_by_c1(world, large)
            first, published = epoch(world), published_state(world)
            servers.hold(CUT_OFF, both_ways=False)
            place = min(world.channel.children(paths.LEADER), key=lambda name: name[-10:])
            world.channel.kazoo.delete(f"{paths.LEADER}/{place}")
            world.until_true(lambda: leader(world) == "c2", 30)
            assert own.read(paths.EPOCH, EpochRecord).value.epoch == first, (
                "the cut-off controller reads old data"
            )
            site.write_text(site.read_text() + OWN_RULE)
            site_watcher.read_if_changed()
            assert site_watcher.read_if_changed()
            c1.wake()
            for _ in range(20):
                world.tick()
            servers.release()
            output = []
            world.until_true(
                lambda: output.append(capsys.readouterr().out) or "c2 has become leader" in "".join(output),
                30,
            )
        finally:
            servers.release()
            c1.stop()
            thread.join(30)
    assert published_state(world) == published
    assert (leader(world), epoch(world)) == ("c2", first + 1)
    world.until_true(world.all_well, 30)
