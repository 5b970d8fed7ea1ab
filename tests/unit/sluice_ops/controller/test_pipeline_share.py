"""The tiers come to the pipeline's share by themselves, after a change of the share or of hosts."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord
from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import PipelineShare, Share
from sluice_ops.model.tier import Mode

TICKS = 250


def bounded(maximum, minimum="0%"):
    return PipelineShare(minimum=minimum, maximum=maximum)


@cache
def started(state=True):
    """Return a world with room for sixteen slots. `counts` is handed over if it keeps state."""
    tiers = (tier("enrich", Mode.BATCH, 1), tier("counts", Mode.BATCH, 0, state=state))
    shares = {
        "enrich": Share(minimum=1, target="50%", maximum="100%"),
        "counts": Share(minimum=1, target="25%", maximum="100%"),
        BATCH: Share(minimum=2, target=4, maximum=8),
    }
    rules = replace(RULES, shares=shares, partitions=16, pipeline_share=bounded("50%"))
    return World(hosts=(host("h1"), host("h2")), tiers=tiers, rules=rules).bring_up()


@pytest.fixture
def world():
    return deepcopy(started())


def slots(world):
    return {name: len(world.placement(name).slots) for name in world.specs}


def batch_slots(world):
    return sum(unit.tenant == BATCH for name in world.agents for unit in world.assigned(name))


def run(world, most, ticks=TICKS):
    """Let time pass. Once the tiers have at most `most` slots, they never have more."""
    within = False
    for _ in range(ticks):
        world.tick()
        total = sum(slots(world).values())
        assert not within or total <= most, f"{slots(world)} are more than {most} slots"
        within = within or total <= most


def settles(world):
    names = [name for name in world.channel.children("/changes") if name.startswith("settle-")]
    return [world.channel.read(paths.change(name), ChangeRecord).value for name in names]


def test_tiers_start_within_the_pipelines_maximum(world):
    assert slots(world) == {"enrich": 5, "counts": 3}


@pytest.mark.parametrize(
    ("maximum", "expected"),
    [
        ("80%", {"enrich": 8, "counts": 4}),
        ("30%", {"enrich": 3, "counts": 1}),
        (6, {"enrich": 4, "counts": 2}),
    ],
)
def test_another_maximum_is_reached_with_one_change_for_each_tier(world, maximum, expected):
    world.rules = replace(world.rules, pipeline_share=bounded(maximum))
    run(world, sum(expected.values()))
    assert slots(world) == expected
    assert len(settles(world)) == 2
    world.check_settled()


def test_the_tiers_follow_a_host_that_joins(world):
    world.add_host(host("h3"))
    run(world, 12)
    assert slots(world) == {"enrich": 8, "counts": 4}
    assert len(settles(world)) == 2


def test_the_tiers_follow_a_host_that_leaves(world):
    world.add_host(host("h3"))
    run(world, 12)
    world.begin("d", kind="drain", host="h3")
    world.settle()
    world.agents.pop("h3").die()
    for path in (paths.host_record("h3"), paths.assignment("h3"), paths.observed("h3"), paths.host("h3")):
        world.channel.delete(path)
    run(world, 8)
    assert slots(world) == {"enrich": 5, "counts": 3}


def test_a_new_leader_continues_wherever_the_old_one_died(world):
    world.rules = replace(world.rules, pipeline_share=bounded("30%"))
    for moment in range(0, 40, 3):
        forked = deepcopy(world)
        for _ in range(moment):
            forked.tick()
        heir = deepcopy(started())  # a controller that knows nothing of the last seconds
        forked.absences, forked.ages, forked.settled = heir.absences, heir.ages, None
        forked.absences._clock = forked.ages._clock = forked.clock
        for _ in range(TICKS):
            forked.tick()
        assert slots(forked) == {"enrich": 3, "counts": 1}, f"the leader died after {moment} s"


def test_batch_gives_back_its_minimum_for_the_pipelines_minimum():
    world = deepcopy(started(state=False))
    shares = {**world.rules.shares, BATCH: Share(minimum=8, target=8, maximum=8)}
    world.rules = replace(world.rules, shares=shares)
    run(world, 8)
    assert (slots(world), batch_slots(world)) == ({"enrich": 5, "counts": 3}, 6), "the drivers take room"
    world.rules = replace(world.rules, pipeline_share=bounded("75%", "75%"))
    run(world, 12)
    assert (slots(world), batch_slots(world)) == ({"enrich": 8, "counts": 4}, 2)
