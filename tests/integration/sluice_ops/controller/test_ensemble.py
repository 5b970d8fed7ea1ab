"""Controllers on three ZooKeeper servers: one or two servers die, and links are cut or flap."""

import signal
import sys
import time
from contextlib import suppress
from itertools import pairwise

import pytest
from simulation.live import LiveWorld

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import EpochRecord
from tests.ensemble import Ensemble, Link, writing
from tests.integration.sluice_ops.controller.test_leaders import Controllers, leader

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

CHROOT = "/hits"
PAUSE_SECONDS = 2.0
"""The longest time without a write when the leading server dies."""


class PatientWorld(LiveWorld):
    """A world whose agents, and test, wait while the channel is away."""

    def tick(self, seconds=0.1):
        try:
            super().tick(seconds)
        except ChannelAwayError:
            time.sleep(seconds)

    def until_true(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while True:
            with suppress(ChannelAwayError):
                if condition():
                    return
            assert time.monotonic() < deadline, f"not within {seconds} s"
            self.tick()

    def query(self, question):
        """Return the channel's answer, as soon as it answers."""
        answers = []
        self.until_true(lambda: answers.append(question()) or True, 30)
        return answers[0]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    started = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        started.wait_until_serving()
        started.make_path(CHROOT)
        yield started
    finally:
        started.stop()


@pytest.fixture
def ensemble(servers):
    servers.wait_until_serving()
    yield servers
    for number in (1, 2, 3):
        if number in servers.running:
            servers.signal(signal.SIGCONT, number)
        else:
            servers.start(number)


@pytest.fixture
def world(ensemble, request):
    chroot = f"{CHROOT}/{request.node.name[:40]}"
    ensemble.make_path(chroot)
    with Channel(ensemble.address + chroot) as channel:
        patient_world = PatientWorld(channel=channel)
        patient_world.chroot = chroot
        yield patient_world


@pytest.fixture
def controllers(ensemble, world, tmp_path):
    processes = Controllers(ensemble.address + world.chroot, tmp_path)
    try:
        yield processes
    finally:
        processes.stop()
        sys.stdout.writelines(
            f"--- {log.name}\n{log.read_text()[-3000:]}\n" for log in tmp_path.glob("*.log")
        )


@pytest.fixture
def links(ensemble):
    proxies = [Link(port) for port in ensemble.clients.values()]
    yield proxies
    for link in proxies:
        link.close()


def epoch(world):
    return world.channel.read(paths.EPOCH, EpochRecord).value.epoch


def largest_queue(world):
    """Return the most places in the queue.

    A standby leaves the queue for a moment when it reads the leader's state.
    """
    counts = []
    for _ in range(30):
        world.tick()
        counts.append(len(world.channel.children(paths.LEADER)))
    return max(counts)


def run_pipeline(world, controllers):
    """Run the pipeline with `c1` as the leader."""
    controllers.start("c1")
    world.until_true(lambda: leader(world) == "c1", 60)
    world.want()
    world.until_true(world.all_well, 120)


def run_over_links(links, world, controllers):
    """Run the pipeline with links between `c1` and the servers; `c2` stands by without links."""
    everywhere = controllers.address
    controllers.address = ",".join(f"127.0.0.1:{link.port}" for link in links) + world.chroot
    run_pipeline(world, controllers)
    controllers.address = everywhere
    controllers.start("c2")
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)


def test_the_same_controller_leads_on_when_the_leading_server_dies(world, controllers, ensemble):
    run_pipeline(world, controllers)
    before = epoch(world)
    with writing(controllers.address) as write_times:
        world.until_true(lambda: len(write_times) > 10, 30)
        ensemble.kill(ensemble.leader())
        killed = time.monotonic()
        world.until_true(lambda: write_times[-1] > killed + 5, 60)
    longest = max(later - earlier for earlier, later in pairwise(write_times))
    sys.stdout.write(f"nothing was written for {longest:.2f} s after the leading server was killed\n")
    assert longest < PAUSE_SECONDS
    world.until_true(lambda: bool(world.channel.read(paths.EPOCH, EpochRecord)), 30)
    world.until_true(lambda: world.kill_driver("counts") or True, 30)
    world.until_true(lambda: world.owner("counts").owner == 2 and world.all_well(), 60)
    sys.stdout.write(
        f"a dead tier ran again {time.monotonic() - killed:.1f} s after the leading server was killed\n"
    )
    assert world.query(lambda: (leader(world), epoch(world))) == ("c1", before), (
        "the session continued, so the leader did not change"
    )


def test_without_a_majority_nothing_moves_and_then_all_continues(world, controllers, ensemble):
    run_pipeline(world, controllers)
    owners = world.query(lambda: {name: world.owner(name).owner for name in world.specs})
    others = [number for number in ensemble.running if number != ensemble.leader()]
    ensemble.signal(signal.SIGSTOP, *others)
    world.kill_driver("counts", owners["counts"])  # by its number, because the channel may be away
    time.sleep(20)
    ensemble.signal(signal.SIGCONT, *others)
    ensemble.leader()

    def all_registered():
        for agent in (
            world.agents.values()
        ):  # Agents register again and again, because nodes of an ended session disappear later.
            agent.register()
        return world.all_well()

    world.until_true(all_registered, 120)
    settled = time.monotonic() + 10
    world.until_true(lambda: all_registered() and time.monotonic() > settled, 120)
    now = world.query(lambda: {name: world.owner(name).owner for name in world.specs})
    assert now == owners | {"counts": 2}, "the dead tier was restarted, nothing else moved"


def test_a_cut_off_controller_acts_on_nothing_and_another_one_leads(world, controllers, links):
    run_over_links(links, world, controllers)
    first = epoch(world)
    for link in links:
        link.cut()
    cut = time.monotonic()
    world.until_true(lambda: leader(world) == "c2", 60)
    sys.stdout.write(f"another controller leads {time.monotonic() - cut:.1f} s after the cut\n")
    world.kill_driver("enrich")
    world.until_true(lambda: world.owner("enrich").owner == 2 and world.all_well(), 60)
    for link in links:
        link.mend()
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
    for _ in range(30):
        world.tick()
    assert (leader(world), epoch(world)) == ("c2", first + 1)
    assert controllers.running["c1"].poll() is None, "c1 stands by again"


def test_a_flapping_connection_leaks_no_lock_and_makes_no_second_leader(world, controllers, links):
    run_over_links(links, world, controllers)
    drained = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=drained)
    for _ in range(12):
        for link in links:
            link.cut()
        for _ in range(6):
            world.tick()
        for link in links:
            link.mend()
        for _ in range(12):
            world.tick()
    world.until_true(lambda: runbook.ended, 180)
    assert runbook.ok, runbook.results
    assert world.host_state(drained) is HostState.DRAINED
    for _ in range(80):  # until nodes of earlier sessions have disappeared
        world.tick()
    assert largest_queue(world) == 2, "each controller has one place in the queue"
    world.check_settled()
