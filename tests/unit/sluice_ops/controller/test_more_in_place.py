"""A tier gets workers in place: only the new slots start, and its incarnation goes on."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeState, Step
from sluice_ops.model.ids import BATCH
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.planning.placement.pace import widest_gap


def pipeline(*hosts, workers=1, batch=0, **fields):
    """Return a settled pipeline with the tier `counts`; its day shift has three workers."""
    shares = {
        "counts": Share(minimum=1, target=workers, maximum=8),
        BATCH: Share(minimum=0, target=batch, maximum=8),
    }
    return World(
        hosts=hosts,
        tiers=[tier("counts", Mode.BATCH, 0).model_copy(update=fields)],
        rules=replace(RULES, shares=shares, shifts={"day": {"counts": Numbers(target=3)}}, partitions=4),
    ).bring_up()


def scale_up(world, k=3):
    return world.begin("s1", kind="scale", tier="counts", k=k)


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world):
    return len(world.placement("counts").slots)


def batch_slots(world):
    return sum(unit.tenant == BATCH for name in world.agents for unit in world.assigned(name))


BOTH_MODES = pytest.mark.parametrize("mode", [Mode.BATCH, Mode.REALTIME])


@pytest.mark.parametrize(
    ("mode", "gap", "planned"),
    [(Mode.BATCH, 0.0, "without a gap"), (Mode.REALTIME, 0.1, "with a gap of about 0.6 s")],
)
def test_only_the_new_workers_start_and_the_incarnation_stays(mode, gap, planned):
    world = pipeline(host("h1", cpu=4), mode=mode)
    scale = scale_up(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world), world.owner("counts").owner) == (3, 1)
    assert sentences(scale)[Step.PREFLIGHT].startswith(
        f"planned: counts gets 2 workers in place, on h1, h1; about 8 s, {planned}"
    )
    assert sentences(scale)[Step.CUT] == "counts goes on with 3 workers"
    assert "counts: got slot-counts-1-1, slot-counts-1-2" in sentences(scale)[Step.VERIFY]
    assert widest_gap(world.channel.read(paths.change("s1"), ChangeRecord).value) == gap
    world.check_settled()


def test_the_step_verify_waits_a_while_for_the_gap_of_a_realtime_tier():
    world = pipeline(host("h1", cpu=4), mode=Mode.REALTIME)
    world.logs["counts"].gap_after = None
    scale = scale_up(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert "counts/1 reported no gap within 10 s" in sentences(scale)[Step.VERIFY]


@BOTH_MODES
def test_a_shift_gives_workers_in_place(mode):
    world = pipeline(host("h1", cpu=4), mode=mode)
    day = world.begin("d1", kind="shift", shift="day")
    world.settle()
    assert day.ok, sentences(day)
    assert (slots(world), world.owner("counts").owner) == (3, 1)


def test_workers_join_in_the_room_that_batch_gives_back():
    world = pipeline(host("h1", cpu=4), batch=2)
    assert batch_slots(world) == 2
    scale = scale_up(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world), world.owner("counts").owner, batch_slots(world)) == (3, 1, 0)


def test_workers_leave_and_join_again_under_the_same_names():
    world = pipeline(host("h1", cpu=4), workers=3)
    for k in (1, 3):
        change = world.begin(f"to-{k}", kind="scale", tier="counts", k=k)
        world.settle()
        assert change.ok, sentences(change)
        assert (slots(world), world.owner("counts").owner) == (k, 1)
    assert world.owner("counts").paused_workers == ()
    world.check_settled()


@pytest.mark.parametrize("fields", [{"state": True}, {"standby": Standby.WARM}])
def test_other_tiers_get_workers_by_a_handover(fields):
    world = pipeline(host("h1", cpu=16), **fields)
    before = world.owner("counts").owner
    scale = scale_up(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert slots(world) == 3
    assert world.owner("counts").owner > before


@pytest.mark.parametrize(("mode", "field"), [(Mode.BATCH, "takes_workers"), (Mode.REALTIME, "plans_anew")])
def test_a_driver_of_an_older_version_is_handed_over(mode, field):
    world = pipeline(host("h1", cpu=16), mode=mode)
    setattr(world.driver("counts"), field, False)
    world.driver("counts")._report()
    scale = scale_up(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world), world.owner("counts").owner) == (3, 2)


@BOTH_MODES
def test_an_abort_takes_the_joining_workers_away(mode):
    world = pipeline(host("h1", cpu=4), mode=mode)
    world.driver("counts").stuck = True
    scale = scale_up(world)
    world.until(lambda: slots(world) == 3)
    scale.abort()
    world.driver("counts").stuck = False
    world.settle()
    assert (slots(world), world.owner("counts").owner) == (1, 1)
    assert world.channel.read(paths.change("s1"), ChangeRecord).value.state is ChangeState.ABORTED
    assert [unit.id for unit in world.assigned("h1")].count("slot-counts-1-1") == 0
    world.check_settled()


@BOTH_MODES
def test_a_driver_that_dies_while_workers_join_ends_the_change(mode):
    world = pipeline(host("h1", cpu=4), mode=mode)
    world.driver("counts").stuck = True
    scale = scale_up(world)
    world.until(lambda: slots(world) == 3)
    world.kill_driver("counts")
    world.settle()
    assert not scale.ok
    assert sentences(scale)[Step.CUT] == "counts/1 ended while it got workers; 2 has taken over"
    assert slots(world) == 1
    world.check_settled()


@BOTH_MODES
def test_a_joining_worker_whose_host_is_lost_joins_elsewhere(mode):
    world = pipeline(host("h1", cpu=1.5), host("h2", cpu=1), host("h3", cpu=1), mode=mode)
    world.driver("counts").stuck = True
    scale = scale_up(world, k=2)
    world.until(lambda: slots(world) == 2)
    joining = world.placement("counts").slots[1]
    world.agents[joining].die()
    world.until(lambda: world.placement("counts").slots[1] != joining)
    world.driver("counts").stuck = False
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world), world.owner("counts").owner) == (2, 1)


def test_without_room_the_change_is_refused_before_anything_starts():
    world = pipeline(host("h1", cpu=2))
    scale = scale_up(world, k=4)
    world.settle()
    assert not scale.ok
    assert sentences(scale)[Step.PREFLIGHT].startswith(
        'tier "counts": 3 of 3 units (1 cpu, 1024 MiB each) find no room; free: h1 0.5 cpu'
    )
    assert slots(world) == 1
