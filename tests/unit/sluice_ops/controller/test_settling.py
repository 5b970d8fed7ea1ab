"""Numbers with an end: the leader removes them once after their end, and the tiers follow, whatever
dies meanwhile.
"""

from copy import deepcopy
from functools import cache

import pytest
from simulation.world import RULES, World

from sluice_ops.controller.policies.settling import ATTEMPT_INTERVAL_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Layers
from sluice_ops.planning.placement.shares import ended_entries

HOUR = 3600.0


@cache
def scaled():
    """Return a world where a tier of two workers has three for an hour."""
    world = World()
    world.bring_up()
    runbook = world.begin("s1", kind="scale", tier="enrich", k=3, until=world.now + HOUR)
    world.settle()
    assert runbook.ok, runbook.results
    return world


@pytest.fixture
def world():
    return deepcopy(scaled())


def layers(world):
    stored = world.channel.read(paths.LAYERS, Layers)
    return Layers() if stored is None else stored.value


def expiries(world):
    """Return the controller's own changes, in the order of their names."""
    names = [name for name in world.channel.children("/changes") if name.startswith("settle-")]
    return [world.channel.read(paths.change(name), ChangeRecord).value for name in names]


def pass_time(world, seconds):
    world.now += seconds
    for _ in range(60):
        world.tick()


def test_a_tier_returns_to_its_usual_number_when_a_layer_expires(world):
    (entry,) = layers(world).entries
    assert (entry.target, entry.owner) == (3, "test")
    world.now = entry.until - 2
    world.tick()
    assert not expiries(world)
    pass_time(world, 0)
    assert layers(world) == Layers()
    (change,) = expiries(world)
    assert (change.state, change.by) == (ChangeState.DONE, CONTROLLER)
    assert len(world.placement("enrich").slots) == 2
    assert change.receipts["enrich"], "the change ends with a handover, as any other change"
    world.check_settled()


def test_an_expired_number_that_moves_nothing_is_removed_too():
    world = deepcopy(scaled())
    world.want("enrich", running=False)
    world.settle()
    pass_time(world, HOUR)
    assert layers(world) == Layers()
    world.want("enrich")
    world.settle()
    assert len(world.placement("enrich").slots) == 2


def test_batch_gets_slots_for_a_time(world):
    runbook = world.begin("b1", kind="scale", tier="batch", k=2, until=world.now + 60)
    world.settle()
    assert runbook.ok, runbook.results
    lent = [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "batch"]
    assert len(lent) == 2
    pass_time(world, 60)
    assert not [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "batch"]


def test_an_expired_number_waits_for_a_change_in_progress(world):
    drain = world.begin("d1", deadline=2 * HOUR, kind="drain", host="h1")
    world.until(lambda: Step.PREPARE in drain.results)
    world.now += HOUR
    world.tick()
    assert not drain.ended
    assert any(
        "the time of enrich's share is over; waits until change d1 has ended" in sentence
        for sentence in world.sentences
    )
    world.settle()
    assert drain.ok, drain.results
    pass_time(world, 0)
    assert layers(world) == Layers()
    assert len(world.placement("enrich").slots) == 2


def test_a_failed_attempt_is_undone_and_repeated_minutes_later(world):
    world.now += HOUR
    world.until(lambda: world.next_driver("enrich") is not None)
    world.next_driver("enrich").broken = {State.WARMING, State.READY}
    world.settle()
    (first,) = expiries(world)
    assert first.state is ChangeState.ABORTED
    assert [entry.target for entry in layers(world).entries] == [3], (
        "the number applies until it can be removed"
    )
    assert len(world.placement("enrich").slots) == 3
    world.check_settled()
    pass_time(world, ATTEMPT_INTERVAL_SECONDS)
    assert layers(world) == Layers()
    assert [change.state for change in expiries(world)] == [ChangeState.ABORTED, ChangeState.DONE]
    assert len(world.placement("enrich").slots) == 2


def test_an_operator_may_abort_the_removal_at_any_moment():
    for moment in range(1, 20, 2):
        world = deepcopy(scaled())
        world.now += HOUR
        world.until(lambda world=world: expiries(world))
        for _ in range(moment):
            world.tick()
        (change,) = expiries(world)
        if change.state is not ChangeState.ACTIVE:
            break
        identity = f"{change.id}.{Step.ABORT}"
        operation = Operation(
            id=identity, change=change.id, step=Step.ABORT, spec=change.spec, by="anna", posted_at=world.now
        )
        world.channel.create(paths.operation(identity), operation)
        world.settle()
        world.check_settled()
        assert world.state("enrich") is State.RUNNING
        pass_time(world, ATTEMPT_INTERVAL_SECONDS)
        assert layers(world) == Layers()
        assert len(world.placement("enrich").slots) == 2


def test_a_driver_killed_at_any_moment_does_not_change_the_end():
    for moment in range(1, 20, 2):
        world = deepcopy(scaled())
        world.now += HOUR
        for _ in range(moment):
            world.tick()
        world.kill_driver("enrich")
        for _ in range(2):
            pass_time(world, ATTEMPT_INTERVAL_SECONDS)
        assert not ended_entries(layers(world), world.now)
        assert len(world.placement("enrich").slots) == 2
        world.check_settled()


def test_a_number_with_an_end_in_the_past_is_refused(world):
    runbook = world.begin("s2", kind="scale", tier="counts", k=2, until=world.now - 1)
    world.settle()
    assert (
        "is past, so nothing was changed; name a time in the future"
        in runbook.results[Step.PREFLIGHT].sentence
    )
    assert RULES.shares["counts"].target == len(world.placement("counts").slots)


def test_a_new_number_replaces_the_one_with_an_end(world):
    longer = world.begin("s2", kind="scale", tier="enrich", k=4)
    world.settle()
    assert longer.ok, longer.results
    pass_time(world, HOUR)
    assert not expiries(world)
    assert len(world.placement("enrich").slots) == 4
