"""A tier that needs room waits for tasks of batch up to the site file's limit; then the tasks are
ended. The waits are measured.

The tests use the real agent's decisions.
"""

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from simulation.reconciling_agents import ReconcilingWorld
from simulation.world import RULES, host, tier

from sluice_ops.controller.leader import Absences
from sluice_ops.model import paths
from sluice_ops.model.assignment import slot_id
from sluice_ops.model.batch import Reclaim, Reclaims, task_seconds
from sluice_ops.model.ids import BATCH
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from sluice_ops.process.durations import TimestampAges

LATE = 3.0
"""Ticks of a second until every process has noticed."""


def reclaims(world):
    stored = world.channel.read(paths.BATCH_RECLAIMS, Reclaims)
    return Reclaims() if stored is None else stored.value


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
    may_run = task_seconds(seconds)
    longest = min(max(lengths), may_run)
    assert longest <= world.now - min(agent.asked_since.values()) <= longest + LATE
    assert set(agent.interrupted) == {name for name, length in agent.tasks.items() if length > may_run}, (
        "tasks that end in time are not interrupted"
    )
    event(f"{len(agent.interrupted)} ended")
    world.settle()
    measured = reclaims(world)
    assert not measured.going
    assert len(measured.ended) == 3
    assert all(each.limit == seconds and each.by for each in measured.ended)
    assert longest <= measured.percentile(99) <= longest + LATE + 2
    assert not any(each.late for each in measured.ended if seconds >= 10), "the limit holds for any task"


LENGTH = 20.0


def lent():
    """Return a world in which batch gives two slots back for a tier that is raised."""
    shares = {
        "counts": Share(minimum=1, target=1, maximum=8),
        BATCH: Share(minimum=0, target=2, maximum=2),
    }
    rules = replace(RULES, shares=shares, partitions=4, reclaim_seconds=60.0)
    world = ReconcilingWorld(hosts=[host("h1", cpu=3.5)], tiers=[tier("counts", Mode.BATCH, 0)], rules=rules)
    world.bring_up()
    agent = world.agents["h1"]
    agent.tasks = {slot_id(BATCH, 0, number): LENGTH for number in range(2)}
    world.begin("s1", kind="scale", tier="counts", k=3)
    world.until(lambda: len(agent.asked_since) == 2)
    return world


def test_the_time_counts_from_the_demand_and_names_the_change():
    world = lent()
    (first, second) = reclaims(world).going
    assert (first.slot, second.slot) == (slot_id(BATCH, 0, 0), slot_id(BATCH, 0, 1))
    assert (first.host, first.by, first.limit, first.seconds) == ("h1", "scale of test", 60.0, None)
    world.settle()
    assert not reclaims(world).going
    assert all(LENGTH <= each.seconds <= LENGTH + 2 * LATE for each in reclaims(world).ended)


@pytest.mark.parametrize("moment", range(0, 24, 2))
def test_a_new_leader_goes_on_measuring_whenever_the_old_one_died(moment):
    world = lent()
    for _ in range(moment):
        world.tick()
    world.absences, world.ages = Absences(8.0, world.clock), TimestampAges(world.clock)
    world.led_since = world.now
    world.settle()
    measured = reclaims(world)
    assert not measured.going
    assert [LENGTH <= each.seconds <= LENGTH + 2 * LATE for each in measured.ended] == [True, True]


def test_a_clock_that_jumps_does_not_change_the_measurement():
    world = lent()
    world.ahead = 7200.0
    world.settle()
    assert all(each.seconds <= LENGTH + 2 * LATE for each in reclaims(world).ended)


def test_a_lost_host_gives_no_measurement():
    world = lent()
    world.agents["h1"].die()
    for _ in range(30):
        world.tick()
    assert reclaims(world) == Reclaims()


class Newer(Frozen):
    """The node as a newer version writes it."""

    going: str


def test_an_unreadable_measurement_is_written_again():
    world = lent()
    world.channel.put(paths.BATCH_RECLAIMS, Newer(going="7"))
    world.settle()
    world.begin("s2", kind="scale", tier="counts", k=1)
    world.settle()
    world.begin("s3", kind="scale", tier="counts", k=2)
    world.settle()
    assert len(reclaims(world).ended) == 1


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(1, 100))
def test_a_percentile_is_the_least_time_within_which_so_many_came_back(seconds, per_cent):
    ended = tuple(Reclaim(slot="s", host="h", at=0, by="", limit=60, seconds=each) for each in seconds)
    percentile = Reclaims(ended=ended).percentile(per_cent)
    if not seconds:
        assert percentile is None
    else:
        assert sum(each <= percentile for each in seconds) * 100 >= per_cent * len(seconds)
        assert sum(each < percentile for each in seconds) * 100 < per_cent * len(seconds)
