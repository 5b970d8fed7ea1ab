"""Changes with unreadable records: they count as aborted, and no other change takes their ids."""

from copy import deepcopy
from functools import cache

import pytest

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Operation, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Layers
from tests.unit.sluice_ops.controller.test_settling import HOUR, scaled

OF_NEWER = '{"state": "of the next version"}'


@cache
def expiring():
    """Return a world where a tier's third worker for an hour has expired, and the controller has
    begun to remove the number.
    """
    world = deepcopy(scaled())
    world.now += HOUR
    world.until(lambda: world.next_driver("enrich") is not None)
    return world


@pytest.fixture
def world():
    return deepcopy(expiring())


def garble(world, change):
    _, version, _ = world.channel.nodes[paths.change(change)]
    world.channel.nodes[paths.change(change)] = (OF_NEWER, version + 1, None)


def own_changes(world):
    """Return the states of the controller's own readable changes."""
    records = {
        name: world.channel.read(paths.change(name), ChangeRecord)
        for name in world.channel.children("/changes")
    }
    return {
        name: change.value.state
        for name, change in records.items()
        if name.startswith("settle-") and change is not None
    }


def attempts(world):
    (first,) = own_changes(world)
    return first, f"{first.removesuffix('-1')}-2"


def test_the_next_attempt_has_another_id_than_an_unreadable_one(world):
    first, second = attempts(world)
    garble(world, first)
    world.settle()
    assert own_changes(world) == {second: ChangeState.DONE}
    assert world.channel.nodes[paths.change(first)][0] == OF_NEWER
    assert world.channel.read(paths.LAYERS, Layers).value == Layers()
    assert len(world.placement("enrich").slots) == 2
    world.check_settled()


def test_the_next_attempt_differs_from_one_with_only_steps_left(world):
    first, second = attempts(world)
    world.next_driver("enrich").broken = {State.WARMING, State.READY}
    world.settle()
    assert own_changes(world) == {first: ChangeState.ABORTED}
    world.channel.delete(paths.change(first))
    world.settle()
    assert own_changes(world) == {second: ChangeState.DONE}


def test_two_passes_over_the_same_state_give_an_attempt_the_same_id(world):
    first, _ = attempts(world)
    garble(world, first)
    world.until(lambda: not [name for name in own_changes(world) if name == first])
    _, one = world.decide()
    _, other = world.decide()
    assert [write.path for write in one.writes] == [write.path for write in other.writes]


@pytest.mark.parametrize("step", [Step.ABORT, Step.PREFLIGHT])
def test_a_step_of_an_unreadable_change_is_answered(world, step):
    world.settle()
    cordon = world.begin("d1", kind="cordon", host="h1")
    world.settle()
    garble(world, "d1")
    identity = f"d1.{step}"
    world.channel.delete(paths.operation(identity))
    world.channel.create(
        paths.operation(identity),
        Operation(
            id=identity, change=ChangeId("d1"), step=step, spec=cordon.spec, by="anna", posted_at=world.wall()
        ),
    )
    world.tick()
    sentence = {
        Step.ABORT: "change d1 cannot be read",
        Step.PREFLIGHT: "has begun before and its record cannot be read; use another id",
    }[step]
    assert sentence in world.channel.nodes[paths.result(identity)][0]
