"""A given-up tier blocks no other tier.

A change that has to move the tier is refused at once with the next step; other changes leave it
out.
"""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
from simulation.world import RULES, World, host

from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import State
from sluice_ops.model.share import Numbers

NIGHT = {"night": {"counts": Numbers(target=2), "enrich": Numbers(target=1)}}


@cache
def given_up():
    world = World(rules=replace(RULES, shifts=NIGHT))
    world.bring_up()
    world.give_up("counts")
    return world


def restart(world):
    world.want("counts", attempt=1)
    world.settle()


@pytest.fixture
def world():
    return deepcopy(given_up())


def test_a_driver_that_keeps_failing_is_given_up_until_it_is_started_again(world):
    assert "given up after 5 failures in a row" in world.statuses["counts"].sentence
    assert world.statuses["counts"].error == "failed: boom"
    owner = world.owner("counts").owner
    for _ in range(50):
        world.tick()
    assert world.owner("counts").owner == owner
    restart(world)
    assert world.state("counts") is State.RUNNING


def ended(world, runbook):
    world.until(lambda: runbook.ended)
    return runbook


@pytest.mark.parametrize("kind", ["drain", "reboot"])
def test_a_drain_of_a_given_up_tiers_host_is_refused_with_the_next_step(world, kind):
    carries = world.placement("counts").driver
    runbook = ended(world, world.begin("d1", kind=kind, host=carries))
    assert list(runbook.results) == [Step.PREFLIGHT]
    assert runbook.results[Step.PREFLIGHT].sentence == (
        'tier "counts" was given up (failed: boom), and cannot be handed over while it does not run. '
        "Fix the fault and run `sluice start counts`, or remove the tier's units with `sluice stop counts`; "
        f"then repeat the {kind}"
    )
    world.want("counts", running=False)
    world.tick()
    assert ended(world, world.begin("d2", kind=kind, host=carries)).ok
    world.settle()
    world.check_settled()


def test_a_restarted_tiers_host_can_be_drained(world):
    restart(world)
    assert ended(world, world.begin("d1", kind="drain", host=world.placement("counts").driver)).ok


def test_a_host_without_the_given_up_tier_can_be_drained(world):
    other = next(name for name in world.agents if name not in world.placement("counts").hosts)
    runbook = ended(world, world.begin("d1", kind="drain", host=other))
    assert runbook.ok, runbook.results
    assert not world.agents[other].units


def test_a_leave_is_refused_only_if_the_given_up_tier_is_on_burst_hosts():
    world = deepcopy(given_up())
    restart(world)
    world.add_host(host("e1", zone="ec2"))
    world.tick()
    assert ended(world, world.begin("u1", kind="burst", tier="counts", k=1)).ok
    assert ended(world, world.begin("u2", kind="burst", tier="enrich", k=1)).ok
    world.give_up("counts")
    refused = ended(world, world.begin("l1", kind="leave"))
    assert "then repeat the leave" in refused.results[Step.PREFLIGHT].sentence
    runbook = ended(world, world.begin("l2", kind="leave", tier="enrich"))
    assert runbook.ok, runbook.results
    assert "e1" not in world.placement("enrich").hosts


def test_a_shift_skips_a_given_up_tier_and_its_next_start_has_the_number(world):
    before = world.owner("counts").owner
    runbook = ended(world, world.begin("n1", kind="shift", shift="night"))
    assert runbook.ok, runbook.results
    assert (
        "counts was given up and is not moved: the change takes effect at its next start"
        in runbook.results[Step.PREFLIGHT].sentence
    )
    assert len(world.placement("enrich").slots) == 1
    assert world.owner("counts").owner == before
    restart(world)
    assert len(world.placement("counts").slots) == 2


def test_a_new_number_of_a_given_up_tier_applies_at_its_next_start(world):
    runbook = ended(world, world.begin("s1", kind="scale", tier="counts", k=3))
    assert runbook.ok, runbook.results
    restart(world)
    assert len(world.placement("counts").slots) == 3


@pytest.mark.parametrize("when", ["before anything is prepared", "while another is prepared"])
@pytest.mark.parametrize("kind", ["drain", "shift"])
def test_a_tier_given_up_during_a_change_does_not_block_it(when, kind):
    world = deepcopy(given_up())
    restart(world)
    both = next(
        name
        for name in world.agents
        if {"counts", "enrich"} <= {unit.tenant for unit in world.assigned(name)}
    )
    of = {"shift": "night"} if kind == "shift" else {"host": both}
    runbook = world.begin("c1", deadline=10_000.0, kind=kind, **of)
    if when == "while another is prepared":
        world.until(lambda: world.owner("counts").next is not None)
    world.logs["enrich"].broken[None] = {State.STARTING}
    world.kill_driver("enrich")
    ended(world, runbook)
    assert world.statuses["enrich"].state == "failed"
    assert runbook.ok, runbook.results
    if kind == "shift":
        assert len(world.placement("counts").slots) == 2
    else:
        assert both not in world.placement("enrich").hosts, (
            "the tier was started elsewhere before it was given up"
        )


def test_a_tier_given_up_on_a_draining_host_ends_the_drain():
    world = deepcopy(given_up())
    restart(world)
    world.logs["enrich"].broken[None] = {State.STARTING}
    world.kill_driver("enrich")
    world.until(lambda: (status := world.statuses["enrich"]).failures == 4 and status.state == "waiting")
    world.logs["enrich"].broken.clear()
    world.logs["enrich"].away = "Kafka"
    world.until(lambda: world.driver("enrich") is not None)
    runbook = world.begin("c1", deadline=10_000.0, kind="drain", host=world.placement("enrich").driver)
    world.until(lambda: runbook.current is Step.PREPARE)
    world.kill_driver("enrich")
    ended(world, runbook)
    assert 'tier "enrich" was given up' in runbook.results[Step.PREPARE].sentence
    assert Step.ABORT in runbook.results


def test_a_pause_and_a_resume_leave_the_given_up_tier_out(world):
    paused = ended(world, world.begin("p1", kind="pause"))
    assert paused.ok, paused.results
    assert (
        paused.results[Step.PAUSE].sentence
        == "paused: outbound, enrich, entry; left out, as it was given up: counts"
    )
    world.want("counts", attempt=1)
    world.until(lambda: world.state("counts") is State.PAUSED)
    assert ended(world, world.begin("r1", kind="resume")).ok
    world.settle()
    assert world.state("counts") is State.RUNNING


def test_a_pause_of_the_given_up_tier_by_name_is_refused(world):
    paused = ended(world, world.begin("p1", kind="pause", tier="counts"))
    assert (
        "counts cannot be paused: the tier is given up after 5 failures in a row"
        in paused.results[Step.PAUSE].sentence
    )
