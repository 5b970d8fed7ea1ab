"""An abort waits only for the tiers of its change.

Trouble of another tier is no failure of the abort.
"""

import pytest
from simulation.world import World

from sluice_ops.model import paths
from sluice_ops.model.change import Result, Step
from sluice_ops.operations.requests import operation_id

SECONDS = 40


@pytest.fixture
def world():
    return World().bring_up()


def make_hang(world, name):
    """Kill the tier's driver, and let the next driver never get past starting."""
    world.logs[name].hangs = True
    world.kill_driver(name)
    for _ in range(3):
        world.tick()


def hand_over_at_growth(world, name):
    """Let the tier's driver be of an older version, which cannot take workers in place."""
    world.driver(name).plans_anew = False
    world.settle()


def abort_result(world, runbook):
    """Abort the change; return the result of the abort, or None if there is none in time."""
    runbook.abort()
    for _ in range(SECONDS):
        world.tick()
    result = world.channel.read(paths.result(operation_id(runbook.change, Step.ABORT)), Result)
    return None if result is None else result.value


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
def test_an_abort_does_not_wait_for_a_tier_outside_its_change(world, spec, under_way):
    hand_over_at_growth(world, "enrich")
    for name in ("counts", "enrich"):
        world.driver(name).stuck = (
            spec["kind"] == "pause"
        )  # stuck, so that the pause does not end before the abort
    runbook = world.begin("c1", **spec)
    world.until(lambda: under_way(world))
    make_hang(world, "entry")
    result = abort_result(world, runbook)
    assert result is not None, "the abort waits for entry"
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
def test_an_abort_waits_for_the_tiers_of_its_change(world, spec, under_way):
    hand_over_at_growth(world, "enrich")
    world.logs["enrich"].hangs = True
    runbook = world.begin("c1", **spec)
    world.until(lambda: under_way(world))
    make_hang(world, "enrich")
    assert abort_result(world, runbook) is None
