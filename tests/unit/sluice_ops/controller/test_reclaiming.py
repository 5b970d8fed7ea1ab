"""A tier that needs room waits for tasks of batch up to the site file's limit; then the tasks are
ended.

The tests use the real agent's decisions.
"""

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from simulation.reconciling_agents import ReconcilingWorld
from simulation.world import RULES, host, tier

from sluice_ops.model.assignment import slot_id
from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode

LATE = 3.0
"""Ticks of a second until every process has noticed."""


def units(world, tenant):
    return {unit.id for unit in world.assigned("h1") if unit.tenant == tenant}


@settings(max_examples=30)
@given(st.lists(st.integers(0, 60), min_size=3, max_size=3), st.integers(5, 40), st.booleans())
def test_raised_tiers_wait_for_batch_tasks_up_to_the_site_files_limit(lengths, seconds, starts):
    has = 2 if starts else 1
    shares = {
        "counts": Share(minimum=has, target=has, maximum=8),
        BATCH: Share(minimum=0, target=3, maximum=3),
    }
    rules = replace(RULES, shares=shares, partitions=4, reclaim_seconds=float(seconds))
    world = ReconcilingWorld(
        hosts=[host("h1", cpu=3.0 if starts else 4.5)], tiers=[tier("counts", Mode.BATCH, 0)], rules=rules
    )
    world.want(running=not starts)
    world.settle()
    agent, before = world.agents["h1"], units(world, "counts")
    assert len(units(world, BATCH)) == 3
    agent.tasks = {slot_id(BATCH, 0, number): float(length) for number, length in enumerate(lengths)}
    if starts:
        world.want("counts")
    else:
        world.begin("s1", kind="scale", tier="counts", k=4)
    world.until(lambda: len(agent.asked_since) == 3)
    world.until(lambda: units(world, "counts") - before)
    assert not [name for name in agent.asked_since if name in agent.units], (
        "no unit is started into room that is not free"
    )
    longest = min(max(lengths), seconds)
    assert longest <= world.now - min(agent.asked_since.values()) <= longest + LATE
    assert set(agent.interrupted) == {name for name, length in agent.tasks.items() if length > seconds}, (
        "tasks that end in time are not interrupted"
    )
    event(f"{len(agent.interrupted)} ended")
