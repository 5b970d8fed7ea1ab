"""A tier that was started from a savepoint has it in every later incarnation, however it comes."""

import pytest
from simulation.world import settled

from sluice_ops.model.savepoint import StartFrom

FIRST = StartFrom(name="before-fix", after=7, ends={"hits/0": 9})
SECOND = StartFrom(name="later", after=20, ends={"hits/0": 30})
pytestmark = pytest.mark.timeout(240)


def savepoint_of(world):
    return world.incarnation("counts", world.owner("counts").owner).savepoint


def start_from(world, savepoint):
    world.want("counts", running=False)
    world.settle()
    world.want("counts", running=True, savepoint=savepoint)
    world.settle()


def test_each_incarnation_since_the_start_has_the_savepoint():
    world = settled()
    assert savepoint_of(world) is None
    start_from(world, FIRST)
    assert savepoint_of(world) == FIRST
    world.kill_driver("counts")
    world.settle()
    assert savepoint_of(world) == FIRST
    moved = world.begin("s1", kind="repartition", tier="counts", partitions=6)
    world.until(lambda: moved.ended, 400)
    world.settle()
    assert moved.ok
    assert savepoint_of(world) == FIRST
    start_from(world, SECOND)
    assert savepoint_of(world) == SECOND
    world.want("counts", running=False)
    world.settle()
    world.want("counts", running=True)
    world.settle()
    assert savepoint_of(world) == SECOND, "a plain start continues where the tier was"
