"""A tier without state bursts and leaves EC2 in place: its incarnation goes on."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Result, Step
from sluice_ops.model.share import Layers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.operations.requests import operation_id


def full_home(workers=2, home=None, **fields):
    """Return a tier that fills its home, beside an instance with room for four workers."""
    return World(
        hosts=(host("h1", cpu=workers + 0.5 if home is None else home), host("e1", zone="ec2", cpu=4)),
        tiers=[tier("counts", Mode.BATCH, 0).model_copy(update=fields)],
        rules=replace(
            RULES, shares={"counts": Share(minimum=1, target=workers, maximum=8)}, shifts={}, partitions=8
        ),
    ).bring_up()


def carried_out(world, change, **spec):
    runbook = world.begin(change, **spec)
    world.settle()
    assert runbook.ok, sentences(runbook)
    world.check_settled()
    return runbook


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world):
    return world.placement("counts").slots


def burst_size(world):
    read = world.channel.read(paths.LAYERS, Layers)
    entry = None if read is None else read.value.present_burst("counts")
    return 0 if entry is None else entry.extra


def test_a_tier_that_fills_home_bursts_and_leaves_in_place():
    world = full_home()
    burst = carried_out(world, "b1", kind="burst", tier="counts", k=2)
    assert sentences(burst)[Step.PREFLIGHT].startswith(
        "planned: counts gets 2 workers in place, on e1, e1; about 8 s, without a gap"
    )
    assert (slots(world), burst_size(world)) == (("h1", "h1", "e1", "e1"), 2)
    carried_out(world, "b2", kind="burst", tier="counts", k=1)
    assert (slots(world), burst_size(world)) == (("h1", "h1", "e1", "e1", "e1"), 3)
    carried_out(world, "l1", kind="leave", tier="counts", k=2)
    assert (slots(world), burst_size(world)) == (("h1", "h1", "e1"), 1)
    carried_out(world, "l2", kind="leave", tier="counts")
    assert (slots(world), burst_size(world)) == (("h1", "h1"), 0)
    assert world.owner("counts").owner == 1
    assert not world.agents["e1"].units


def test_a_tier_that_grew_at_home_after_its_burst_leaves_in_place():
    world = full_home(home=3.5)
    carried_out(world, "b1", kind="burst", tier="counts", k=1)
    carried_out(world, "s1", kind="scale", tier="counts", k=3)
    assert slots(world) == ("h1", "h1", "e1", "h1")
    leave = carried_out(world, "l1", kind="leave")
    assert slots(world) == ("h1", "h1", "h1")
    assert world.owner("counts").owner == 1
    assert world.owner("counts").paused_workers == ("slot-counts-1-3",)
    assert sentences(leave)[Step.PREFLIGHT].startswith(
        "planned: counts gives up 2 workers, then gets 1 worker in place, on h1; about 5 s, without a gap"
    )
    assert (
        "counts: gave up slot-counts-1-2, slot-counts-1-3, then got slot-counts-1-2"
        in (sentences(leave)[Step.VERIFY])
    )


def test_a_released_worker_ends_before_another_gets_its_name():
    world = full_home(home=3.5)
    carried_out(world, "b1", kind="burst", tier="counts", k=1)
    carried_out(world, "s1", kind="scale", tier="counts", k=3)
    world.begin("l1", kind="leave")
    while not world.runbooks[-1].ended:
        world.tick()
        holders = [name for name, agent in world.agents.items() if "slot-counts-1-2" in agent.units]
        assert len(holders) <= 1
    world.settle()
    assert slots(world) == ("h1", "h1", "h1")


def test_an_abort_takes_the_workers_of_a_burst_away():
    world = full_home()
    world.driver("counts").stuck = True
    burst = world.begin("b1", kind="burst", tier="counts", k=2)
    world.until(lambda: len(slots(world)) == 4)
    burst.abort()
    world.driver("counts").stuck = False
    world.settle()
    assert (slots(world), burst_size(world), world.owner("counts").owner) == (("h1", "h1"), 0, 1)
    assert not world.agents["e1"].units
    world.check_settled()


def test_an_abort_after_a_takeover_says_what_stays_on_ec2():
    world = full_home(workers=1, home=6, mode=Mode.REALTIME)
    world.driver("counts").plans_anew = False  # of an older version, so the tier is handed over
    world.settle()
    burst = world.begin("b1", kind="burst", tier="counts", k=1)
    world.until(lambda: world.owner("counts").owner == 2)
    burst.abort()
    aborted = paths.result(operation_id("b1", Step.ABORT))
    world.until(lambda: world.channel.exists(aborted))
    result = world.channel.read(aborted, Result)
    assert result.value.sentence == (
        "change b1 is aborted: counts stays with incarnation 2, which had taken over, and keeps units on "
        "e1 without a burst: take them off with `sluice leave --tier counts`"
    )
    carried_out(world, "l1", kind="leave", tier="counts")
    assert slots(world) == ("h1",)
    assert not world.agents["e1"].units


def test_an_abort_of_a_leave_brings_the_workers_back():
    world = full_home()
    carried_out(world, "b1", kind="burst", tier="counts", k=2)
    world.driver("counts").stuck = True
    leave = world.begin("l1", kind="leave")
    world.until(lambda: world.owner("counts").paused_workers)
    leave.abort()
    world.driver("counts").stuck = False
    world.settle()
    assert (slots(world), burst_size(world)) == (("h1", "h1", "e1", "e1"), 2)
    assert (world.owner("counts").owner, world.owner("counts").paused_workers) == (1, ())
    world.check_settled()


@pytest.mark.parametrize("home", [2.5, 6.5], ids=["home is full", "home has room"])
def test_an_instance_that_dies_while_its_workers_join_ends_the_burst(home):
    world = full_home(home=home)
    world.driver("counts").stuck = True
    burst = world.begin("b1", kind="burst", tier="counts", k=2)
    world.until(lambda: len(slots(world)) == 4)
    world.agents["e1"].die()
    world.driver("counts").stuck = False
    world.settle()
    assert not burst.ok
    assert sentences(burst)[Step.CUT].startswith(
        "counts lost 2 workers of its burst while they joined, because their instances are away"
    )
    assert world.channel.read(paths.change("b1"), ChangeRecord).value.state is ChangeState.ABORTED
    assert (slots(world), burst_size(world), world.owner("counts").owner) == (("h1", "h1"), 0, 1)
    world.check_settled()


def test_a_driver_that_dies_while_its_burst_joins_ends_the_burst():
    world = full_home()
    world.driver("counts").stuck = True
    burst = world.begin("b1", kind="burst", tier="counts", k=1)
    world.until(lambda: len(slots(world)) == 3)
    world.kill_driver("counts")
    world.settle()
    assert not burst.ok
    assert sentences(burst)[Step.CUT] == "counts/1 ended while it got workers; 2 has taken over"
    assert (slots(world), burst_size(world)) == (("h1", "h1"), 0)
    world.check_settled()


def test_a_driver_that_dies_during_a_leave_leaves_all_the_same():
    world = full_home(home=3.5)
    carried_out(world, "b1", kind="burst", tier="counts", k=1)
    carried_out(world, "s1", kind="scale", tier="counts", k=3)
    world.driver("counts").stuck = True
    leave = world.begin("l1", kind="leave")
    world.until(lambda: world.owner("counts").paused_workers)
    world.kill_driver("counts")
    world.settle()
    assert leave.ok, sentences(leave)
    assert (slots(world), burst_size(world)) == (("h1", "h1", "h1"), 0)
    world.check_settled()


def test_the_loss_of_the_instance_leaves_the_tier_at_home():
    world = full_home()
    carried_out(world, "b1", kind="burst", tier="counts", k=2)
    world.agents["e1"].die()
    world.settle()
    leave = carried_out(world, "l1", kind="leave")
    assert leave.ok
    assert (slots(world), burst_size(world)) == (("h1", "h1"), 0)


def test_a_realtime_tier_bursts_in_place_and_leaves_by_a_handover():
    world = full_home(home=8, mode=Mode.REALTIME)
    carried_out(world, "b1", kind="burst", tier="counts", k=1)
    assert (slots(world), world.owner("counts").owner) == (("h1", "h1", "e1"), 1)
    carried_out(world, "l1", kind="leave")
    assert (slots(world), world.owner("counts").owner) == (("h1", "h1"), 2)


def test_a_tier_with_state_bursts_and_leaves_by_a_handover():
    world = full_home(home=8, state=True)
    carried_out(world, "b1", kind="burst", tier="counts", k=1)
    assert (sorted(slots(world)), world.owner("counts").owner) == (["e1", "h1", "h1"], 2)
    carried_out(world, "l1", kind="leave")
    assert (slots(world), world.owner("counts").owner) == (("h1", "h1"), 3)
