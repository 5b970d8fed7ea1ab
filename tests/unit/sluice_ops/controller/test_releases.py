"""A tier comes to new code by an upgrade that is tried first, runs it from then on, and goes back
to the old code by itself otherwise.
"""

from copy import deepcopy
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.world import SHAPE, TIERS, World

from sluice_ops.controller.steps.trial import MIN_RECORDS, QUARANTINE_MARGIN, fault
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import TRIAL_SECONDS, Flowed, State
from sluice_ops.model.release import StreamShape
from sluice_ops.model.tier import Standby

OLD, NEW = "r1-aaaaaaaa", "r2-bbbbbbbb"
pytestmark = pytest.mark.timeout(240)


@cache
def settled_world():
    """All tiers run the old release; the new one is published."""
    world = World()
    world.publish(OLD)
    world.want()
    world.settle()
    world.publish(NEW)
    world.settle()
    return world


@pytest.fixture
def world():
    return deepcopy(settled_world())


def runs(world, tier="enrich"):
    return world.incarnation(tier, world.owner(tier).owner).release


def upgrade(world, tier="enrich", **more):
    return world.begin("u1", kind="upgrade", tier=tier, **more)


def ended(world, runbook):
    world.until(lambda: runbook.ended, 400)
    world.settle()
    world.check_settled()
    return runbook


def test_publishing_changes_nothing_that_runs_nor_what_is_started_again(world):
    assert {runs(world, name) for name in world.specs} == {OLD}
    world.kill_driver("enrich")
    world.settle()
    assert runs(world) == OLD
    world.want("enrich", running=False)
    world.settle()
    world.want("enrich")
    world.settle()
    assert runs(world) == OLD


def test_a_tier_from_before_there_were_releases_starts_with_the_newest_one():
    world = World()
    world.want()
    world.settle()
    assert runs(world) is None
    world.publish(OLD)
    world.publish(NEW)
    world.settle()
    assert runs(world) is None
    world.kill_driver("enrich")
    world.settle()
    assert runs(world) == NEW
    assert world.wanted("enrich").release == NEW


def test_an_upgrade_hands_over_and_later_incarnations_run_the_new_code(world):
    before = world.owner("enrich").owner
    runbook = ended(world, upgrade(world))
    assert runbook.ok, runbook.results
    assert "did well for 20 s" in runbook.results[Step.TRIAL].sentence
    assert f"starts from release {NEW} from now on" in runbook.results[Step.RELEASE].sentence
    assert runs(world) == NEW
    assert world.owner("enrich").owner > before
    assert runs(world, "entry") == OLD
    world.kill_driver("enrich")
    world.settle()
    assert runs(world) == NEW


def test_what_runs_already_is_not_moved(world):
    runbook = ended(world, upgrade(world, release=OLD))
    assert runbook.ok
    assert f"enrich already runs {OLD}" in runbook.results[Step.PREFLIGHT].sentence


def test_an_earlier_release_may_be_gone_back_to(world):
    assert ended(world, upgrade(world)).ok
    assert ended(world, world.begin("u2", kind="upgrade", tier="enrich", release=OLD)).ok
    assert runs(world) == OLD


def test_what_is_published_meanwhile_is_not_what_the_upgrade_is_about(world):
    runbook = upgrade(world)
    world.until(lambda: Step.PREFLIGHT in runbook.results)
    world.publish("r3-cccccccc")
    assert ended(world, runbook).ok
    assert runs(world) == NEW


@pytest.mark.parametrize("state", [State.STARTING, State.WARMING])
def test_code_that_does_not_get_ready_leaves_the_owner_alone(world, state):
    world.logs["enrich"].broken[NEW] = {state}
    before = world.owner("enrich").owner
    runbook = ended(world, upgrade(world))
    assert "boom" in runbook.results[Step.PREPARE].sentence
    assert runbook.results[Step.ABORT].ok
    assert world.owner("enrich").owner == before
    assert world.state("enrich") is State.RUNNING


def test_code_that_sets_aside_more_than_before_is_left_again(world):
    world.logs["enrich"].sets_aside[NEW] = 40
    runbook = ended(world, upgrade(world))
    said = runbook.results[Step.TRIAL].sentence
    assert "800 of 2000 records went to quarantine (40%); before, 0%" in said
    assert f"it rolls back to {OLD} by itself" in said
    assert "`sluice replay enrich --quarantine`" in said
    assert f"enrich runs release {OLD}" in runbook.results[Step.ABORT].sentence
    assert runs(world) == OLD


def test_code_that_fails_after_the_cut_is_followed_by_the_old_code(world):
    runbook = upgrade(world)
    world.until(lambda: Step.VERIFY in runbook.results)
    number = world.owner("enrich").owner
    world.driver("enrich", number).broken = {State.RUNNING}
    ended(world, runbook)
    assert f"incarnation {number} boom" in runbook.results[Step.TRIAL].sentence
    assert runs(world) == OLD


def test_a_tier_goes_back_though_nobody_goes_on_with_the_upgrade(world):
    runbook = upgrade(world)
    world.until(lambda: Step.CUT in runbook.results)
    world.runbooks.remove(runbook)
    world.tick()
    assert runs(world) == NEW
    world.tick(3700.0)
    world.settle()
    world.check_settled()
    assert runs(world) == OLD


def test_a_paused_tier_is_tried_when_it_runs_again(world):
    runbook = upgrade(world)
    world.until(lambda: Step.VERIFY in runbook.results)
    world.want("enrich", paused=True)
    for _ in range(40):
        world.tick()
    assert not runbook.ended
    world.want("enrich", paused=False)
    assert ended(world, runbook).ok


def test_what_others_rely_on_is_refused_before_anything_starts(world):
    world.publish("r3-cccccccc", enrich=SHAPE.model_copy(update={"inputs": ()}))
    before = world.owner("enrich")
    runbook = ended(world, upgrade(world))
    assert "cannot be handed over from r1-aaaaaaaa to r3-cccccccc" in runbook.results[Step.PREFLIGHT].sentence
    assert world.owner("enrich") == before
    missing = ended(world, world.begin("u2", kind="upgrade", tier="enrich", release="r9"))
    assert (
        "there is no release r9; known releases: r1-aaaaaaaa, r2-bbbbbbbb, r3-cccccccc"
        in missing.results[Step.PREFLIGHT].sentence
    )


def test_it_is_said_what_another_value_of_a_grouping_does(world):
    grouped = SHAPE.model_copy(
        update={
            "outputs": (
                StreamShape(name="out", columns={"id": "string"}, grouping="Fields(columns=('id',))"),
            )
        }
    )
    world.publish("r3-cccccccc", enrich=grouped)
    assert (
        "the partitions of out follow from values that the transform makes"
        in ended(world, upgrade(world)).results[Step.PREFLIGHT].sentence
    )


def test_a_tier_that_does_not_run_is_warned_and_starts_with_the_new_code(world):
    world.publish("r3-cccccccc", enrich=SHAPE.model_copy(update={"inputs": ()}))
    world.want("enrich", running=False)
    world.settle()
    runbook = ended(world, upgrade(world))
    assert runbook.ok, runbook.results
    assert "enrich does not run" in runbook.results[Step.PREFLIGHT].sentence
    world.want("enrich")
    world.settle()
    assert runs(world) == "r3-cccccccc"


def test_a_tier_that_has_failed_is_started_with_the_new_code(world):
    world.logs["enrich"].broken[OLD] = {State.STARTING}
    world.kill_driver("enrich")
    world.until(lambda: world.statuses["enrich"].state == "failed")
    runbook = upgrade(world)
    world.until(lambda: runbook.ended)
    assert runbook.ok, runbook.results
    assert (
        "enrich has failed: it is started with r2-bbbbbbbb at once"
        in runbook.results[Step.PREFLIGHT].sentence
    )
    world.settle()
    assert runs(world) == NEW


@pytest.mark.parametrize("bad", [0, 40])
@pytest.mark.parametrize("who", ["owner", "next"])
def test_a_driver_killed_at_any_moment_of_an_upgrade(who, bad):
    for moment in range(1, 60, 3):
        world = deepcopy(settled_world())
        world.logs["enrich"].sets_aside[NEW] = bad
        runbook = upgrade(world)
        for _ in range(moment):
            world.tick()
        record = world.owner("enrich")
        number = record.owner if who == "owner" else record.next
        if number is not None:
            world.kill_driver("enrich", number)
        ended(world, runbook)
        assert runs(world) == (NEW if runbook.ok else OLD), moment
        assert not (bad and runbook.ok)
        assert world.state("enrich") is State.RUNNING


def test_an_abort_at_any_moment_of_an_upgrade_leads_back_to_the_old_code():
    for moment in range(1, 60, 2):
        world = deepcopy(settled_world())
        runbook = upgrade(world)
        if not runbook.abort_after(moment):
            break
        assert runs(world) == (OLD if world.wanted("enrich").release == OLD else NEW)
        assert world.state("enrich") is State.RUNNING


def test_a_host_lost_at_any_moment_of_an_upgrade_with_bad_code():
    for moment in range(1, 60, 5):
        world = deepcopy(settled_world())
        world.logs["enrich"].sets_aside[NEW] = 40
        runbook = upgrade(world)
        for _ in range(moment):
            world.tick()
        world.agents[world.placement("enrich").driver].die()
        world.until(lambda runbook=runbook: runbook.ended, 400)
        for agent in world.agents.values():
            if not agent.alive:
                agent.register()
        world.settle()
        world.check_settled()
        assert runs(world) == OLD


def test_a_standby_is_of_the_code_that_was_accepted():
    world = World(tiers=(TIERS[0].model_copy(update={"standby": Standby.WARM}), *TIERS[1:]))
    world.publish(OLD)
    world.want()
    world.settle()
    world.publish(NEW)
    world.logs["entry"].sets_aside[NEW] = 40
    ended(world, upgrade(world, "entry"))
    world.tick(40.0)
    world.until(lambda: world.owner("entry").standby is not None)
    assert world.incarnation("entry", world.owner("entry").standby).release == OLD


counts = st.integers(0, 1000)


@st.composite
def flows(draw, restarts=0):
    done = draw(counts)
    bad = draw(st.integers(0, done))
    return Flowed(
        seconds=TRIAL_SECONDS,
        records_in=done,
        records_out=done - bad,
        quarantined=bad,
        waiting=draw(counts),
        restarts=restarts,
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(before=flows(), after=flows())
def test_what_does_no_worse_than_before_passes_its_trial(before, after):
    found = fault(before, after)
    if (
        after.records_in
        and before.records_in
        and after.quarantined * before.records_in <= before.quarantined * after.records_in
    ):
        assert (
            found is None
            or "no output from" in found
            or after.records_in < before.records_in / 2 < after.waiting
        )
    if not after.records_in:
        assert (found is None) is (not after.waiting or before.records_in < MIN_RECORDS)
    if found is None and after.records_in >= MIN_RECORDS:
        usual = before.quarantined / before.records_in if before.records_in else 0.0
        assert after.quarantined / after.records_in <= usual + QUARANTINE_MARGIN
    assert (fault(None, after) is None) is not (after.records_in == 0 and after.waiting >= MIN_RECORDS)


def test_what_does_much_less_than_before_while_records_wait_does_not_pass():
    before = Flowed(
        seconds=600.0, records_in=60_000, records_out=60_000, quarantined=0, waiting=40, restarts=0
    )
    slow = Flowed(
        seconds=TRIAL_SECONDS, records_in=300, records_out=300, quarantined=0, waiting=1700, restarts=0
    )
    assert fault(before, slow) == "300 records were processed in 20 s, before 2000 in that time; 1700 wait"
    assert fault(before, slow.model_copy(update={"waiting": 40})) is None, "less came in"
    assert fault(before, slow.model_copy(update={"records_in": 1900})) is None, "more came in"


@given(flows(restarts=3))
def test_a_query_that_failed_does_not_pass(after):
    assert "its query failed" in str(fault(None, after))
