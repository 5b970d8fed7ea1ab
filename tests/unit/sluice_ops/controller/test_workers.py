"""Single workers are paused and woken one at a time, nearest the pipeline's end first, each with a
receipt.
"""

from dataclasses import replace

import pytest
from simulation.world import RULES, TIERS, World, tier

from sluice_ops.model import paths
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import IncarnationReport, State
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode

WIDE = replace(
    RULES,
    shares={
        **RULES.shares,
        "counts": Share(minimum=1, target=3, maximum=3),
        "middle": Share(target=2, maximum=2),
    },
)


@pytest.fixture
def world():
    without_state = (tier("counts", Mode.BATCH, 0) if spec.name == "counts" else spec for spec in TIERS)
    return World(tiers=(*without_state, tier("middle", Mode.BATCH, 1)), rules=WIDE).bring_up()


def idle(world, name):
    """Return the workers that the tier's driver reports as paused."""
    report = world.channel.read(paths.report(name, world.owner(name).owner), IncarnationReport)
    return report.value.paused_workers


def sentence(runbook, step):
    return runbook.results[step].sentence


def pause(world, *workers, name="p1", **spec):
    runbook = world.begin(name, kind="pause", workers=workers, **spec)
    world.settle()
    return runbook


def test_the_log_says_that_a_paused_worker_keeps_its_slot(world):
    pause(world, "slot-counts-1-0")
    assert any(
        "counts: slot-counts-1-0 finishes its last task and keeps its slot" in said
        for said in world.sentences
    )


def test_a_set_is_paused_one_at_a_time_nearest_the_end_first(world):
    workers = ("slot-middle-1-0", "slot-counts-1-2", "slot-counts-1-0")
    runbook = world.begin("p1", kind="pause", workers=workers, tier="outbound")
    order = []
    while not runbook.ended:
        world.tick()
        ordered = [worker for name in ("counts", "middle") for worker in world.owner(name).paused_workers]
        ordered += ["outbound"] if world.owner("outbound").paused else []
        done = [
            *idle(world, "counts"),
            *idle(world, "middle"),
            *(["outbound"] if world.state("outbound") is State.PAUSED else []),
        ]
        order += [worker for worker in done if worker not in order]
        assert len(ordered) <= len(done) + 1, "one at a time"
    assert runbook.ok, runbook.results
    assert set(order[:2]) == {"slot-counts-1-2", "slot-counts-1-0"}
    assert order[2:] == ["outbound", "slot-middle-1-0"]
    assert "slot-counts-1-2 (drained in 1.0 s, 7 tasks done)" in sentence(runbook, Step.PAUSE)
    assert runbook.results[Step.PAUSE].details["receipts"].keys() == set(workers)
    assert world.state("counts") is State.RUNNING
    assert "2 of its 3 workers paused" in world.statuses["counts"].sentence


def test_a_resume_wakes_paused_workers(world):
    pause(world, "slot-counts-1-0", "slot-counts-1-1")
    resume = world.begin("r1", kind="resume", tier="counts")
    world.settle()
    assert resume.ok
    assert not idle(world, "counts")
    assert world.owner("counts").paused_workers == ()


def test_an_incarnation_that_takes_over_has_all_its_workers(world):
    pause(world, "slot-counts-1-0")
    world.begin("d1", kind="drain", host=world.placement("counts").driver)
    world.settle()
    assert world.owner("counts").owner == 2
    assert world.owner("counts").paused_workers == ()
    again = pause(world, "slot-counts-2-1", name="p2")
    assert again.ok
    assert world.owner("counts").paused_workers == ("slot-counts-2-1",)


def test_an_abort_wakes_the_workers_that_its_change_paused(world):
    world.driver("counts").stuck = True
    runbook = world.begin("p1", deadline=5.0, kind="pause", workers=("slot-counts-1-0",))
    world.until(lambda: world.owner("counts").paused_workers)
    world.settle()
    assert "waiting until slot-counts-1-0 is paused" in sentence(runbook, Step.PAUSE)
    assert world.owner("counts").paused_workers == ()
    assert not idle(world, "counts")


@pytest.mark.parametrize(
    ("workers", "spec", "message"),
    [
        (
            ("slot-counts-9-0",),
            {},
            (
                'there is no worker "slot-counts-9-0"; `sluice slots` lists the workers: '
                "slot-counts-1-0, slot-counts-1-1"
            ),
        ),
        (
            ("slot-entry-1-0",),
            {},
            "would have no worker left; pause the whole tier: `sluice pause entry`",
        ),
        (
            ("slot-middle-1-0", "slot-middle-1-1"),
            {},
            "would have no worker left; pause the whole tier: `sluice pause middle`",
        ),
        (("slot-counts-1-0",), {"tier": "counts"}, "name one or the other"),
    ],
)
def test_an_impossible_pause_of_workers_is_refused(world, workers, spec, message):
    refused = pause(world, *workers, **spec)
    assert message in sentence(refused, Step.PREFLIGHT)
    assert world.owner("counts").paused_workers == ()


def test_realtime_workers_pause_when_the_others_have_threads_for_all(world):
    runbook = pause(world, "slot-enrich-1-1")
    assert runbook.ok, runbook.results
    assert "enrich restarts its query on the other workers" in sentence(runbook, Step.PREFLIGHT)
    assert world.owner("enrich").paused_workers == ("slot-enrich-1-1",)


def test_a_pause_that_leaves_too_few_threads_is_refused():
    narrow = replace(
        WIDE, shares={**WIDE.shares, "enrich": Share(minimum=1, target=2, maximum=4)}, partitions=5
    )
    world = World(rules=narrow)
    world.bring_up()
    refused = pause(world, "slot-enrich-1-0")
    assert "one thread for each of its 5 partitions, but 1 of its 2 workers have 4" in sentence(
        refused, Step.PREFLIGHT
    )
    assert world.owner("enrich").paused_workers == ()


def test_the_last_worker_is_kept(world):
    pause(world, "slot-middle-1-0")
    refused = pause(world, "slot-middle-1-1", name="p2")
    assert "would have no worker left" in sentence(refused, Step.PREFLIGHT)


def test_a_worker_of_a_tier_that_is_paused_as_a_whole_is_refused(world):
    world.begin("p0", kind="pause", tier="counts")
    world.settle()
    refused = pause(world, "slot-counts-1-0")
    assert "the whole tier is paused; first: sluice resume counts" in sentence(refused, Step.PAUSE)


def with_rules(world, **rules):
    """Let the site file set more rules for `counts`, which has 3 workers."""
    shares = {**world.rules.shares, "counts": Share(minimum=rules.pop("minimum", 1), target=3, maximum=3)}
    world.rules = replace(world.rules, shares=shares, **rules)


def test_no_more_workers_are_paused_than_the_budget_allows(world):
    with_rules(world, budget={"counts": 1})
    assert pause(world, "slot-counts-1-0").ok
    refused = pause(world, "slot-counts-1-1", name="p2")
    assert sentence(refused, Step.PREFLIGHT) == (
        'tier "counts": 1 of its 3 workers would work, but budget.counts allows 1 to be missing; '
        "pause the whole tier with `sluice pause counts`, or raise budget.counts in the site file"
    )
    assert world.owner("counts").paused_workers == ("slot-counts-1-0",)


def test_a_paused_worker_may_be_named_again_after_a_lower_budget(world):
    assert pause(world, "slot-counts-1-0").ok
    with_rules(world, budget={"counts": 0})
    assert pause(world, "slot-counts-1-0", name="p2").ok
    assert "budget.counts allows 0 to be missing" in sentence(
        pause(world, "slot-counts-1-1", name="p3"), Step.PREFLIGHT
    )


def test_below_its_minimum_a_tier_is_paused_only_as_a_whole(world):
    with_rules(world, minimum=2)
    assert pause(world, "slot-counts-1-0").ok
    refused = pause(world, "slot-counts-1-1", name="p2")
    assert "1 of its workers would work, below its minimum of 2; pause the whole tier" in sentence(
        refused, Step.PREFLIGHT
    )
    whole = world.begin("p3", kind="pause", tier="counts")
    world.settle()
    assert whole.ok
