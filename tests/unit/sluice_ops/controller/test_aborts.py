"""An abort waits for the tiers that its change was about, and for no other: what ails those is no
failure of the abort.
"""

import pytest
from simulation.world import World

from sluice_ops.model import paths
from sluice_ops.model.change import Result, Step
from sluice_ops.operations.requests import operation_id

SECONDS = 40


@pytest.fixture
def world():
    made = World()
    made.want()
    made.settle()
    return made


def hangs(world, name):
    """Have the tier's driver die, and the next one never come further than starting."""
    world.logs[name].hangs = True
    world.kill_driver(name)
    for _ in range(3):
        world.tick()


def aborted(world, runbook):
    """Have the change aborted; return what became of that within a while."""
    runbook.abort()
    for _ in range(SECONDS):
        world.tick()
    found = world.channel.read(paths.result(operation_id(runbook.change, Step.ABORT)), Result)
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("spec", "under_way"),
    [
        (
            {"kind": "scale", "tier": "enrich", "k": 3},
            lambda world: world.owner("enrich").next is not None,
        ),
        ({"kind": "pause", "tier": "counts"}, lambda world: world.owner("counts").paused),
        (
            {"kind": "pause", "workers": ("slot-enrich-1-1",)},
            lambda world: world.owner("enrich").paused_workers,
        ),
    ],
)
def test_a_tier_that_the_change_was_not_about_is_not_waited_for(world, spec, under_way):
    for name in ("counts", "enrich"):
        world.driver(name).stuck = spec["kind"] == "pause"  # so that it does not come to its end before
    runbook = world.begin("c1", **spec)
    world.until(lambda: under_way(world))
    hangs(world, "entry")
    result = aborted(world, runbook)
    assert result is not None, "it waits for entry"
    assert (result.ok, "entry" in result.sentence) == (True, False)


@pytest.mark.parametrize(
    ("spec", "under_way"),
    [
        (
            {"kind": "scale", "tier": "enrich", "k": 3},
            lambda world: world.owner("enrich").next is not None,
        ),
        ({"kind": "pause"}, lambda world: world.owner("counts").paused),
    ],
)
def test_one_that_it_was_about_is(world, spec, under_way):
    world.logs["enrich"].hangs = True
    runbook = world.begin("c1", **spec)
    world.until(lambda: under_way(world))
    hangs(world, "enrich")
    assert aborted(world, runbook) is None
