"""One worker of a tier is moved to a host by a handover, and stays there."""

from dataclasses import replace

import pytest
from simulation.world import RULES, StatusWorld, World, host, settled, tier

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostRecord, HostState, slot_ids
from sluice_ops.model.change import Step
from sluice_ops.model.repair import Repair
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode


@pytest.fixture
def world():
    return settled()


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def worker(world, number=1, name="enrich"):
    """Return the slot of a worker of the tier."""
    return slot_ids(name, world.owner(name).owner, number + 1)[number]


def begin(world, to):
    return world.begin("m1", kind="migrate", tier="enrich", to=to, workers=(worker(world),))


def free_host(world):
    return next(name for name in sorted(world.agents) if name not in world.placement("enrich").slots)


def test_one_worker_is_moved_and_the_others_keep_their_hosts(world):
    before, to, slot = world.placement("enrich"), free_host(world), worker(world)
    runbook = begin(world, to)
    world.settle()
    assert runbook.ok, sentences(runbook)
    after = world.placement("enrich")
    assert (after.driver, after.slots) == (before.driver, (before.slots[0], to))
    reason = world.incarnation("enrich", world.owner("enrich").owner).reason
    assert reason == f"migrate enrich {slot} to {to}"
    world.check_settled()


def test_a_moved_worker_stays_when_its_tier_is_restarted_and_scaled(world):
    to = free_host(world)
    begin(world, to)
    world.settle()
    placed = sorted(world.placement("enrich").slots)
    world.kill_driver("enrich")
    world.settle()
    assert sorted(world.placement("enrich").slots) == placed
    scale = world.begin("s1", kind="scale", tier="enrich", k=3)
    world.settle()
    assert scale.ok, sentences(scale)
    assert to in world.placement("enrich").slots


def repairing(*names):
    """Return a settled tier with one worker on each of two of these hosts, and automatic repair."""
    shares = {"enrich": Share(minimum=1, target=2, maximum=4)}
    world = StatusWorld(
        hosts=[host(name) for name in names],
        tiers=[tier("enrich", Mode.BATCH, 0)],
        rules=replace(RULES, shares=shares, shifts={}, partitions=8, repair=Repair(after=20.0)),
    )
    return world.bring_up()


def test_automatic_repair_leaves_the_worker_if_the_tier_is_still_even():
    world = repairing("h1", "h2", "h3")
    to = free_host(world)
    runbook = begin(world, to)
    world.settle()
    assert runbook.ok, sentences(runbook)
    placed = world.placement("enrich")
    assert to in placed.slots
    for _ in range(120):
        world.tick()
    assert world.placement("enrich") == placed


def test_automatic_repair_takes_back_a_move_that_made_the_tier_uneven():
    world = repairing("h1", "h2")
    first, _ = world.placement("enrich").slots
    runbook = begin(world, first)
    world.until(lambda: runbook.ended)
    assert runbook.ok, sentences(runbook)
    assert "a repair moves workers of enrich again" in sentences(runbook)[Step.PREFLIGHT]
    assert world.placement("enrich").slots == (first, first)
    world.until(lambda: sorted(world.placement("enrich").slots) == ["h1", "h2"])


def resume_after(world, to, event):
    """Begin the change, let an event happen after its preflight, then post the other steps."""
    runbook = begin(world, to)
    rest, runbook.left = runbook.left[1:], runbook.left[:1]
    world.until(lambda: Step.PREFLIGHT in runbook.results)
    event()
    world.settle()
    runbook.left = rest
    world.settle()
    return runbook


def test_a_worker_of_an_earlier_incarnation_is_refused_and_nothing_moves(world):
    before = world.placement("enrich")
    runbook = resume_after(world, free_host(world), lambda: world.kill_driver("enrich"))
    assert not runbook.ok
    assert (
        'tier "enrich" has no worker slot-enrich-1-1; its workers: slot-enrich-2-0 on'
        in (sentences(runbook)[Step.PREPARE])
    )
    assert sorted(world.placement("enrich").slots) == sorted(before.slots)
    world.check_settled()


def test_nothing_moves_if_the_host_is_cordoned_before_the_move(world):
    before, to = world.placement("enrich"), free_host(world)
    cordoned = HostRecord(state=HostState.CORDONED, by="anna")
    runbook = resume_after(world, to, lambda: world.channel.put(paths.host_record(to), cordoned))
    assert not runbook.ok
    assert f"slot-enrich-1-1 cannot move to {to}: {to} is cordoned" in sentences(runbook)[Step.PREPARE]
    assert world.placement("enrich") == before
    world.check_settled()


def test_the_move_is_repeated_exactly_after_the_drivers_host_was_lost():
    world = World(hosts=[host(f"h{number}") for number in range(1, 6)])
    world.bring_up()
    before = world.placement("enrich")
    to = [name for name in sorted(world.agents) if name not in before.hosts][-1]
    runbook = begin(world, to)
    world.until(lambda: world.owner("enrich").next is not None)
    world.agents[before.driver].die()
    world.settle()
    assert runbook.ok, sentences(runbook)
    owner = world.owner("enrich").owner
    restarted, after = (world.incarnation("enrich", number).placement for number in (owner - 1, owner))
    assert (after.driver, after.slots) == (restarted.driver, (restarted.slots[0], to))
    world.check_settled()
