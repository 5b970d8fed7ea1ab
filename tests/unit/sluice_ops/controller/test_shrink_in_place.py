"""A tier releases its last workers in place: no unit is started, and no tier stands still."""

from dataclasses import replace

import pytest
from simulation.world import RULES, World, host, tier

from sluice_ops.controller.policies import resize_in_place, stop_order
from sluice_ops.controller.steps import handover
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Receipt, State
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.status import TierState
from sluice_ops.model.tier import Mode
from sluice_ops.planning.placement.pace import widest_gap


def pipeline(*hosts, mode=Mode.BATCH, rules=None, **shares):
    """Return a pipeline on the hosts; a tier's share is its minimum and its target, and its night
    shift has two workers.
    """
    wanted = {name: Share(minimum=low, target=aim, maximum=8) for name, (low, aim) in shares.items()}
    night = {name: Numbers(target=2) for name in shares}
    all_rules = replace(
        RULES,
        shares={**wanted, BATCH: Share(minimum=0, target=0, maximum=8)},
        shifts={"night": night},
        partitions=8,
    )
    return World(
        hosts=hosts,
        tiers=[tier(name, mode, number) for number, name in enumerate(shares)],
        rules=all_rules if rules is None else replace(all_rules, **rules),
    ).bring_up()


def sentences(runbook):
    return {step: result.sentence for step, result in runbook.results.items()}


def slots(world, name):
    return len(world.placement(name).slots)


def scale_down(world, k=2, name="s1"):
    return world.begin(name, kind="scale", tier="counts", k=k)


def ticks(world, seconds):
    for _ in range(int(seconds)):
        world.tick()


def test_a_tier_on_a_full_host_releases_workers_in_place():
    world = pipeline(host("h1", cpu=4.5), counts=(1, 4))
    scale = scale_down(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world, "counts"), world.owner("counts").owner) == (2, 1)
    assert sorted(unit.id for unit in world.assigned("h1")) == [
        "driver-counts-1",
        "slot-counts-1-0",
        "slot-counts-1-1",
    ]
    assert sentences(scale)[Step.PREFLIGHT].startswith(
        "planned: counts gives up 2 of its workers in place; the others stay on h1, h1"
    )
    assert (
        "counts: gave up slot-counts-1-2 (drained in 1.0 s, 7 tasks done), slot-counts-1-3 ("
        in sentences(scale)[Step.VERIFY]
    )
    assert "paused" not in world.statuses["counts"].sentence
    world.check_settled()


def record(world, change):
    return world.channel.read(paths.change(change), ChangeRecord).value


@pytest.mark.parametrize(("mode", "predicted", "left"), [(Mode.BATCH, 0.0, 0.0), (Mode.REALTIME, 2.0, None)])
def test_the_gap_is_recorded_beside_the_predicted_gap(mode, predicted, left):
    world = pipeline(host("h1", cpu=4.5), mode=mode, counts=(1, 4))
    scale = scale_down(world)
    world.settle()
    assert scale.ok, sentences(scale)
    done = record(world, "s1")
    assert (done.plan.predicted_gap_seconds, widest_gap(done)) == (predicted, left), (
        "no gap is measured for a realtime tier here"
    )


def test_after_a_shrink_workers_pause_and_wake_and_more_join():
    world = pipeline(host("h1", cpu=9), counts=(1, 4))
    for number, spec in enumerate(
        (
            {"kind": "scale", "tier": "counts", "k": 2},
            {"kind": "pause", "workers": ("slot-counts-1-1",)},
            {"kind": "resume", "tier": "counts"},
            {"kind": "scale", "tier": "counts", "k": 3},
        )
    ):
        change = world.begin(f"c{number}", **spec)
        world.settle()
        assert change.ok, sentences(change)
    assert (slots(world, "counts"), world.owner("counts").owner) == (3, 1)
    assert world.owner("counts").paused_workers == ("slot-counts-1-3",), "it left, and has no slot"


def test_an_abort_wakes_the_workers_that_were_to_be_released():
    world = pipeline(host("h1", cpu=4.5), counts=(1, 4))
    scale = scale_down(world)
    world.until(lambda: world.owner("counts").paused_workers)
    scale.abort()
    world.settle()
    assert (slots(world, "counts"), world.owner("counts").owner, world.owner("counts").paused_workers) == (
        4,
        1,
        (),
    )


def test_an_incarnation_that_takes_over_meanwhile_releases_the_workers():
    world = pipeline(host("h1", cpu=4.5), counts=(1, 4))
    scale = scale_down(world)
    world.until(lambda: scale.current is Step.CUT)
    world.kill_driver("counts")
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world, "counts"), world.owner("counts").owner) == (2, 2)
    world.check_settled()


def test_a_driver_that_fails_during_a_shrink_ends_the_change():
    world = pipeline(host("h1", cpu=4.5), counts=(1, 4))
    driver = world.driver("counts")
    driver.stuck = True
    scale = scale_down(world)
    world.until(lambda: world.owner("counts").paused_workers)
    driver.error = "boom"
    driver._go(State.FAILED)
    world.settle()
    assert (
        sentences(scale)[Step.CUT]
        == "counts/1 failed while it gave up workers; 2 has taken over with all workers"
    )
    assert (slots(world, "counts"), world.owner("counts").owner, world.owner("counts").paused_workers) == (
        4,
        2,
        (),
    )
    world.check_settled()


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("is_through", "left"), [(False, 4), (True, 2)])
def test_an_older_controller_wakes_the_shrinking_workers_and_the_tier_runs(
    mode, is_through, left, monkeypatch
):
    """Run the two functions as an older version would.

    That version wakes workers that no operator paused, and hands over a tier that is to have fewer
    workers.
    """
    world = pipeline(host("h1", cpu=4.5), mode=mode, counts=(1, 4))
    scale = scale_down(world)
    world.until(lambda: scale.ended if is_through else world.owner("counts").paused_workers)
    with monkeypatch.context() as older:
        older.setattr(
            stop_order, "_wanted_workers", lambda draft, name: list(draft.wanted[name].paused_workers)
        )
        older.setattr(
            resize_in_place, "resize", lambda draft, change, move: handover._advance(draft, change, move, [])
        )
        ticks(world, 30)
        assert world.owner("counts").paused_workers == ()
        assert (world.state("counts"), slots(world, "counts"), scale.ok) == (State.RUNNING, left, is_through)
    world.settle()
    assert (world.state("counts"), slots(world, "counts")) == (State.RUNNING, left)
    again = world.begin("s2", kind="scale", tier="counts", k=1 if mode is Mode.BATCH else 2)
    world.settle()
    assert again.ok, sentences(again)
    world.check_settled()


def test_all_workers_to_release_are_paused_together():
    world = pipeline(host("h1", cpu=4.5), counts=(1, 4))
    scale_down(world)
    world.until(lambda: world.owner("counts").paused_workers)
    assert world.owner("counts").paused_workers == ("slot-counts-1-2", "slot-counts-1-3")
    assert "2 of its 4 workers leaving" in world.statuses["counts"].sentence


def test_lost_workers_are_not_waited_for():
    world = pipeline(host("h1", cpu=2.5), host("h2", cpu=2), counts=(1, 4))
    away = next(name for name in ("h1", "h2") if name != world.placement("counts").driver)
    world.agents[away].die()
    world.until(lambda: "runs without its slots" in world.statuses["counts"].sentence)
    assert world.placement("counts").slots[:2] == (world.placement("counts").driver,) * 2
    scale = scale_down(world)
    world.settle()
    assert scale.ok, sentences(scale)
    assert (slots(world, "counts"), world.owner("counts").owner) == (2, 1)
    world.begin("p1", kind="pause")
    world.until(lambda: world.state("counts") is State.PAUSED)


def test_staying_workers_must_be_alive_before_others_are_released():
    world = pipeline(host("h1", cpu=2.5), host("h2", cpu=4.5), host("h3", cpu=2.5), counts=(1, 4))
    scale = scale_down(world)
    staying = world.placement("counts").slots[:2]
    lost = next(name for name in staying if name != world.placement("counts").driver)
    world.agents[lost].die()
    while not scale.ended:
        world.tick()
        living = [name for name in world.placement("counts").slots if world.agents[name].alive]
        resting = len(world.owner("counts").paused_workers)
        assert len(living) - resting >= 1, "at least one worker works"
    assert slots(world, "counts") == 2 or not scale.ok


def test_a_tier_given_up_before_the_shrink_delays_no_other():
    world = pipeline(host("h1", cpu=16), near=(1, 3), far=(1, 3))
    night = world.begin("n1", kind="shift", shift="night")
    world.until(lambda: night.current is Step.PREPARE)
    left, night.left = night.left, []
    while world.statuses["far"].state is not TierState.FAILED:
        if world.driver("far") is not None:
            world.kill_driver("far")
        world.tick()
    night.left = left
    world.until(lambda: night.ended)
    assert night.ok, sentences(night)
    assert slots(world, "near") == 2


def test_a_tier_stopped_during_a_shrink_stays_stopped():
    world = pipeline(host("h1", cpu=4.5), counts=(1, 4))
    scale = scale_down(world)
    world.until(lambda: world.owner("counts").paused_workers)
    world.want("counts", running=False)
    world.settle()
    assert "goes on with" not in sentences(scale)[Step.CUT]
    assert world.owner("counts").stopped


def test_a_realtime_tier_with_too_few_threads_left_does_not_shrink(monkeypatch):
    world = pipeline(host("h1", cpu=4.5), mode=Mode.REALTIME, counts=(1, 4))
    many = Receipt(positions={f"in/{number}": 0 for number in range(12)}, at=0.0)
    monkeypatch.setattr(world.driver("counts"), "started_from", many)
    world.driver("counts")._report()
    scale = scale_down(world)
    world.settle()
    assert sentences(scale)[Step.CUT].startswith(
        "counts/1 cannot go on with 2 workers: it reads 12 partitions, but 2 workers of 4 threads have 8 "
        "threads"
    )
    assert (slots(world, "counts"), world.owner("counts").owner, world.owner("counts").paused_workers) == (
        4,
        1,
        (),
    )
