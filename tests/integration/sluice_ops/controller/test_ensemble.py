"""Controllers on three ZooKeeper servers: one of which dies, two of which are gone, and links that are cut or come and go."""

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

pytestmark = pytest.mark.timeout(400)

CHROOT = "/hits"
PAUSE_SECONDS = 2.0
"""So long at most nothing can be written when the leading server dies."""


class PatientWorld(LiveWorld):
    """One whose agents, and whoever looks at it, wait while the channel is away."""

    def tick(self, seconds=0.1):
        try:
            super().tick(seconds)
        except ChannelAwayError:
            time.sleep(seconds)

    def until_true(self, condition, seconds):
        until = time.monotonic() + seconds
        while True:
            with suppress(ChannelAwayError):
                if condition():
                    return
            assert time.monotonic() < until, f"not within {seconds} s"
            self.tick()

    def ask(self, question):
        """Return what the channel answers, once it does."""
        answers = []
        self.until_true(lambda: answers.append(question()) or True, 30)
        return answers[0]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    made = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        made.wait_until_serving()
        made.make_path(CHROOT)
        yield made
    finally:
        made.stop()


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
        made = PatientWorld(channel=channel)
        made.chroot = chroot
        yield made


@pytest.fixture
def controllers(ensemble, world, tmp_path):
    made = Controllers(ensemble.address + world.chroot, tmp_path)
    try:
        yield made
    finally:
        made.stop()
        sys.stdout.writelines(
            f"--- {log.name}\n{log.read_text()[-3000:]}\n" for log in tmp_path.glob("*.log")
        )


@pytest.fixture
def links(ensemble):
    made = [Link(port) for port in ensemble.clients.values()]
    yield made
    for link in made:
        link.close()


def epoch(world):
    return world.channel.read(paths.EPOCH, EpochRecord).value.epoch


def most_in_the_queue(world):
    """Return how many places there are at most: whoever stands by leaves the queue for a moment to look at what the leader knows."""
    counts = []
    for _ in range(30):
        world.tick()
        counts.append(len(world.channel.children(paths.LEADER)))
    return max(counts)


def run(world, controllers):
    """Have the pipeline run, led by `c1`."""
    controllers.start("c1")
    world.until_true(lambda: leader(world) == "c1", 60)
    world.want()
    world.until_true(world.all_well, 120)


def run_over(links, world, controllers):
    """Likewise, with links between `c1` and the servers, and with `c2` standing by without any."""
    everywhere = controllers.address
    controllers.address = ",".join(f"127.0.0.1:{link.port}" for link in links) + world.chroot
    run(world, controllers)
    controllers.address = everywhere
    controllers.start("c2")
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)


def test_when_the_leading_server_dies_the_same_controller_goes_on(world, controllers, ensemble):
    run(world, controllers)
    before = epoch(world)
    with writing(controllers.address) as taken:
        world.until_true(lambda: len(taken) > 10, 30)
        ensemble.kill(ensemble.leader())
        killed = time.monotonic()
        world.until_true(lambda: taken[-1] > killed + 5, 60)
    longest = max(after - at for at, after in pairwise(taken))
    sys.stdout.write(f"nothing was written for {longest:.2f} s after the leading server was killed\n")
    assert longest < PAUSE_SECONDS
    world.until_true(lambda: bool(world.channel.read(paths.EPOCH, EpochRecord)), 30)
    world.until_true(lambda: world.kill_driver("counts") or True, 30)
    world.until_true(lambda: world.owner("counts").owner == 2 and world.all_well(), 60)
    sys.stdout.write(
        f"a tier is mended {time.monotonic() - killed:.1f} s after the leading server was killed\n"
    )
    assert world.ask(lambda: (leader(world), epoch(world))) == ("c1", before), (
        "the session went on, so nobody else had to lead"
    )


def test_without_a_majority_nothing_moves_and_with_it_all_goes_on(world, controllers, ensemble):
    run(world, controllers)
    owners = world.ask(lambda: {name: world.owner(name).owner for name in world.specs})
    others = [number for number in ensemble.running if number != ensemble.leader()]
    ensemble.signal(signal.SIGSTOP, *others)
    world.kill_driver("counts", owners["counts"])  # by its number: the channel may be away from here on
    time.sleep(20)
    ensemble.signal(signal.SIGCONT, *others)
    ensemble.leader()

    def everybody_is_there():
        for agent in (
            world.agents.values()
        ):  # again and again, as agents do: what an earlier session has left goes when that has ended
            agent.register()
        return world.all_well()

    world.until_true(everybody_is_there, 120)
    settled = time.monotonic() + 10
    world.until_true(lambda: everybody_is_there() and time.monotonic() > settled, 120)
    now = world.ask(lambda: {name: world.owner(name).owner for name in world.specs})
    assert now == owners | {"counts": 2}, "what had died was mended, nothing else moved"


def test_a_cut_off_controller_acts_on_nothing_and_another_one_leads(world, controllers, links):
    run_over(links, world, controllers)
    first = epoch(world)
    for link in links:
        link.cut()
    cut = time.monotonic()
    world.until_true(lambda: leader(world) == "c2", 60)
    sys.stdout.write(f"another one leads {time.monotonic() - cut:.1f} s after the cut\n")
    world.kill_driver("enrich")
    world.until_true(lambda: world.owner("enrich").owner == 2 and world.all_well(), 60)
    for link in links:
        link.mend()
    world.until_true(lambda: len(world.channel.children(paths.LEADER)) == 2, 60)
    for _ in range(30):
        world.tick()
    assert (leader(world), epoch(world)) == ("c2", first + 1)
    assert controllers.running["c1"].poll() is None, "it stands by again"


def test_a_flapping_connection_leaks_no_lock_and_makes_no_second_leader(world, controllers, links):
    run_over(links, world, controllers)
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
    for _ in range(80):  # so long that what an earlier session has left goes
        world.tick()
    assert most_in_the_queue(world) == 2, "one place in the queue for each"
    world.check_settled()
