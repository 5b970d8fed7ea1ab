"""A burst host with a notice of EC2 is cordoned, and with a spot notice it is drained by itself."""

import pytest
from simulation.world import host, settled

from sluice_ops.channel import trail_queue
from sluice_ops.controller.policies import settling
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState
from sluice_ops.model.incarnation import State

NOTICE_SECONDS = 120


@pytest.fixture
def world():
    """Return a pipeline with `enrich` burst by one worker each to two full instances."""
    world = settled()
    for name in ("e1", "e2"):
        world.add_host(host(name, zone="ec2", cpu=2, memory=2048))
    world.tick()
    burst = world.begin("b1", kind="burst", tier="enrich", k=2)
    world.settle()
    assert burst.ok
    assert sorted(world.placement("enrich").slots)[:2] in (["e1", "e1"], ["e1", "e2"], ["e2", "e2"])
    return world


def burst_hosts(world, tier="enrich"):
    return sorted(name for name in world.placement(tier).slots if name.startswith("e"))


def own_changes(world):
    names = [name for name in world.channel.children("/changes") if name.startswith("drain-e")]
    return [world.channel.read(paths.change(name), ChangeRecord).value for name in names]


def notice(world, name):
    """EC2 gives notice; return when it ends the instance."""
    ends_at = world.wall() + NOTICE_SECONDS
    world.agents[name].notice = {"ends_at": ends_at}
    return ends_at


def entries(world):
    return [
        (queued.entry.what, queued.entry.outcome, queued.entry.by)
        for queued in trail_queue.queued(world.channel)
    ]


def test_a_host_with_a_spot_notice_is_drained_within_the_notice(world):
    name = burst_hosts(world)[0]
    ends_at = notice(world, name)
    world.until(lambda: world.host_state(name) is HostState.DRAINED)
    assert world.wall() < ends_at
    assert name not in burst_hosts(world)
    (change,) = own_changes(world)
    assert (change.state, change.by, change.spec.host) == (ChangeState.DONE, CONTROLLER, name)
    assert (f"cordon {name}", "done", CONTROLLER) in entries(world)
    assert (f"drain {name}", "begun", CONTROLLER) in entries(world)
    assert any(f"EC2 ends {name} at" in sentence for sentence in world.sentences)
    world.agents[name].die()
    world.settle()
    assert len(own_changes(world)) == 1
    assert {"h1", "h2", "h3"} & {*world.placement("enrich").slots}


def test_notices_of_all_burst_hosts_bring_the_tier_home(world):
    before = [slot for slot in world.placement("enrich").slots if not slot.startswith("e")]
    for name in ("e1", "e2"):
        notice(world, name)
    world.until(lambda: all(world.host_state(name) is HostState.DRAINED for name in ("e1", "e2")))
    world.settle()
    assert sorted(world.placement("enrich").slots) == sorted(before)


def test_a_drain_for_a_notice_waits_for_the_active_change(world):
    migrate = world.begin("m1", kind="migrate", tier="counts", to="h3")
    world.tick()
    world.tick()
    name = burst_hosts(world)[0]
    notice(world, name)
    world.tick()
    world.tick()
    assert not own_changes(world)
    assert world.host_state(name) is HostState.CORDONED
    assert "waits until change m1 has ended" in world.sentences[-1]
    world.until(lambda: world.host_state(name) is HostState.DRAINED)
    assert migrate.ok


def test_a_refused_drain_is_told_once_and_begins_when_it_is_possible(world):
    name = burst_hosts(world)[0]
    world.give_up("enrich")
    ends_at = notice(world, name)
    for _ in range(30):
        world.tick()
    assert entries(world).count((f"drain {name}", "refused", CONTROLLER)) == 1
    reasons = [sentence for sentence in world.sentences if "its drain waits until it is possible" in sentence]
    assert len(reasons) > 10
    assert len({*reasons}) == 1
    assert 'tier "enrich" was given up' in reasons[0]
    world.want("enrich", attempt=1)
    world.until(lambda: world.host_state(name) is HostState.DRAINED)
    assert world.wall() < ends_at
    assert {change.state for change in own_changes(world)} == {ChangeState.ABORTED, ChangeState.DONE}
    assert len(own_changes(world)) == 2
    assert entries(world).count((f"drain {name}", "refused", CONTROLLER)) == 1


def test_a_failed_drain_begins_again_after_a_pause(world):
    name = burst_hosts(world)[0]
    ends_at = notice(world, name)
    world.until(lambda: world.next_driver("enrich") is not None)
    world.next_driver("enrich").broken = {State.WARMING, State.READY}
    world.until(lambda: any(change.state is ChangeState.ABORTED for change in own_changes(world)))
    failed_at = world.wall()
    world.until(lambda: world.host_state(name) is HostState.DRAINED)
    failed, done = sorted(own_changes(world), key=lambda change: change.started_at)
    assert (failed.state, done.state) == (ChangeState.ABORTED, ChangeState.DONE)
    assert done.started_at >= failed_at + settling.DRAIN_INTERVAL_SECONDS
    assert world.wall() < ends_at
    for _ in range(30):
        world.tick()
    assert len(own_changes(world)) == 2


def test_a_recommendation_cordons_and_a_person_may_return_the_host(world):
    name = burst_hosts(world)[0]
    world.agents[name].notice = {"at_risk_since": world.wall()}
    world.tick()
    world.tick()
    assert world.host_state(name) is HostState.CORDONED
    assert not own_changes(world)
    returned = world.begin("r1", kind="return", host=name)
    world.settle()
    assert returned.ok
    assert world.host_state(name) is HostState.UP
