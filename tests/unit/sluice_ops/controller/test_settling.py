"""Numbers that hold for a time: whoever leads takes them back, once, and the tiers follow; whatever
dies meanwhile.
"""

from copy import deepcopy
from functools import cache

import pytest
from simulation.world import RULES, World

from sluice_ops.controller.policies.settling import AGAIN_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import CONTROLLER, ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Layers
from sluice_ops.planning.placement.shares import ended_entries

HOUR = 3600.0


@cache
def scaled():
    """A tier of two workers that has three for an hour."""
    world = World()
    world.want()
    world.settle()
    runbook = world.begin("s1", kind="scale", tier="enrich", k=3, until=world.now + HOUR)
    world.settle()
    assert runbook.ok, runbook.results
    return world


@pytest.fixture
def world():
    return deepcopy(scaled())


def layers(world):
    found = world.channel.read(paths.LAYERS, Layers)
    return Layers() if found is None else found.value


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
    assert change.receipts["enrich"], "by the same way as any other change"
    world.check_settled()


def test_a_number_that_moves_nothing_is_taken_back_all_the_same():
    world = deepcopy(scaled())
    world.want("enrich", running=False)
    world.settle()
    pass_time(world, HOUR)
    assert layers(world) == Layers()
    world.want("enrich")
    world.settle()
    assert len(world.placement("enrich").slots) == 2


def test_batch_is_lent_slots_for_a_time(world):
    runbook = world.begin("b1", kind="scale", tier="batch", k=2, until=world.now + 60)
    world.settle()
    assert runbook.ok, runbook.results
    lent = [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "batch"]
    assert len(lent) == 2
    pass_time(world, 60)
    assert not [unit for name in world.agents for unit in world.assigned(name) if unit.tenant == "batch"]


def test_it_waits_for_a_change_that_is_under_way(world):
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


def test_a_failed_attempt_is_undone_and_made_again_some_minutes_later(world):
    world.now += HOUR
    world.until(lambda: world.next_driver("enrich") is not None)
    world.next_driver("enrich").broken = {State.WARMING, State.READY}
    world.settle()
    (first,) = expiries(world)
    assert first.state is ChangeState.ABORTED
    assert [entry.target for entry in layers(world).entries] == [3], "it holds until it could be taken back"
    assert len(world.placement("enrich").slots) == 3
    world.check_settled()
    pass_time(world, AGAIN_SECONDS)
    assert layers(world) == Layers()
    assert [change.state for change in expiries(world)] == [ChangeState.ABORTED, ChangeState.DONE]
    assert len(world.placement("enrich").slots) == 2


def test_a_person_may_abort_it_at_any_moment():
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
        told = Operation(
            id=identity, change=change.id, step=Step.ABORT, spec=change.spec, by="anna", posted_at=world.now
        )
        world.channel.create(paths.operation(identity), told)
        world.settle()
        world.check_settled()
        assert world.state("enrich") is State.RUNNING
        pass_time(world, AGAIN_SECONDS)
        assert layers(world) == Layers()
        assert len(world.placement("enrich").slots) == 2


def test_a_driver_killed_at_any_moment_of_it_changes_nothing_in_the_end():
    for moment in range(1, 20, 2):
        world = deepcopy(scaled())
        world.now += HOUR
        for _ in range(moment):
            world.tick()
        world.kill_driver("enrich")
        for _ in range(2):
            pass_time(world, AGAIN_SECONDS)
        assert not ended_entries(layers(world), world.now)
        assert len(world.placement("enrich").slots) == 2
        world.check_settled()


def test_a_number_whose_time_is_past_already_is_refused(world):
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
