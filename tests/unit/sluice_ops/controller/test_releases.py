"""An upgrade moves a tier to new code after a trial, and rolls back to the old code if the trial
fails.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation.world import NEW, OLD, SHAPE, TIERS, World, with_new_release

from sluice_ops.controller.steps.trial import MIN_RECORDS, QUARANTINE_MARGIN, fault
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import TRIAL_SECONDS, Flowed, State
from sluice_ops.model.release import StreamShape
from sluice_ops.model.tier import Standby

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def world():
    return with_new_release()


def release_of(world, tier="enrich"):
    return world.incarnation(tier, world.owner(tier).owner).release


def upgrade(world, tier="enrich", **more):
    return world.begin("u1", kind="upgrade", tier=tier, **more)


def ended(world, runbook):
    world.until(lambda: runbook.ended, 400)
    world.settle()
    world.check_settled()
    return runbook


def test_publishing_changes_no_running_and_no_restarted_tier(world):
    assert {release_of(world, name) for name in world.specs} == {OLD}
    world.kill_driver("enrich")
    world.settle()
    assert release_of(world) == OLD
    world.want("enrich", running=False)
    world.settle()
    world.want("enrich")
    world.settle()
    assert release_of(world) == OLD


def test_a_tier_without_a_release_starts_with_the_newest_one():
    world = World()
    world.bring_up()
    assert release_of(world) is None
    world.publish(OLD)
    world.publish(NEW)
    world.settle()
    assert release_of(world) is None
    world.kill_driver("enrich")
    world.settle()
    assert release_of(world) == NEW
    assert world.wanted("enrich").release == NEW


def test_an_upgrade_hands_over_and_later_incarnations_run_the_new_code(world):
    before = world.owner("enrich").owner
    runbook = ended(world, upgrade(world))
    assert runbook.ok, runbook.results
    assert "did well for 20 s" in runbook.results[Step.TRIAL].sentence
    assert "if it does worse than incarnation" in " ".join(world.sentences)
    assert f"starts from release {NEW} from now on" in runbook.results[Step.RELEASE].sentence
    assert release_of(world) == NEW
    assert world.owner("enrich").owner > before
    assert release_of(world, "entry") == OLD
    world.kill_driver("enrich")
    world.settle()
    assert release_of(world) == NEW


def test_an_upgrade_to_the_running_release_moves_nothing(world):
    runbook = ended(world, upgrade(world, release=OLD))
    assert runbook.ok
    assert f"enrich already runs {OLD}" in runbook.results[Step.PREFLIGHT].sentence


def test_an_upgrade_may_go_back_to_an_earlier_release(world):
    assert ended(world, upgrade(world)).ok
    assert ended(world, world.begin("u2", kind="upgrade", tier="enrich", release=OLD)).ok
    assert release_of(world) == OLD


def test_a_release_published_meanwhile_does_not_change_an_upgrade(world):
    runbook = upgrade(world)
    world.until(lambda: Step.PREFLIGHT in runbook.results)
    world.publish("r3-cccccccc")
    assert ended(world, runbook).ok
    assert release_of(world) == NEW


@pytest.mark.parametrize("state", [State.STARTING, State.WARMING])
def test_code_that_never_gets_ready_leaves_the_owner_running(world, state):
    world.logs["enrich"].broken[NEW] = {state}
    before = world.owner("enrich").owner
    runbook = ended(world, upgrade(world))
    assert "boom" in runbook.results[Step.PREPARE].sentence
    assert runbook.results[Step.ABORT].ok
    assert world.owner("enrich").owner == before
    assert world.state("enrich") is State.RUNNING


def test_code_that_quarantines_more_than_before_is_rolled_back(world):
    world.logs["enrich"].sets_aside[NEW] = 40
    runbook = ended(world, upgrade(world))
    sentence = runbook.results[Step.TRIAL].sentence
    assert "800 of 2000 records went to quarantine (40%); before, 0%" in sentence
    assert f"it rolls back to {OLD} by itself" in sentence
    assert "`sluice replay enrich --quarantine`" in sentence
    assert f"enrich runs release {OLD}" in runbook.results[Step.ABORT].sentence
    assert release_of(world) == OLD


def test_code_that_fails_after_the_cut_is_rolled_back(world):
    runbook = upgrade(world)
    world.until(lambda: Step.VERIFY in runbook.results)
    number = world.owner("enrich").owner
    world.driver("enrich", number).broken = {State.RUNNING}
    ended(world, runbook)
    assert f"incarnation {number} boom" in runbook.results[Step.TRIAL].sentence
    assert release_of(world) == OLD


def test_an_abandoned_upgrade_with_bad_code_is_rolled_back(world):
    runbook = upgrade(world)
    world.until(lambda: Step.CUT in runbook.results)
    world.runbooks.remove(runbook)
    world.tick()
    assert release_of(world) == NEW
    world.tick(3700.0)
    world.settle()
    world.check_settled()
    assert release_of(world) == OLD


def test_a_paused_tier_is_tried_when_it_runs_again(world):
    runbook = upgrade(world)
    world.until(lambda: Step.VERIFY in runbook.results)
    world.want("enrich", paused=True)
    for _ in range(40):
        world.tick()
    assert not runbook.ended
    world.want("enrich", paused=False)
    assert ended(world, runbook).ok


def test_incompatible_code_is_refused_before_anything_starts(world):
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


def test_a_changed_grouping_gets_a_note_with_its_effect(world):
    grouped = SHAPE.model_copy(
        update={
            "outputs": (
                StreamShape(name="out", columns={"id": "string"}, grouping="Fields(columns=('id',))"),
            )
        }
    )
    world.publish("r3-cccccccc", enrich=grouped)
    assert (
        "values that the transform makes choose the partitions of out. "
        "If the new code makes the same values, this is safe"
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
    assert release_of(world) == "r3-cccccccc"


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
    assert release_of(world) == NEW


@pytest.mark.parametrize("bad", [0, 40])
@pytest.mark.parametrize("role", ["owner", "next"])
def test_an_upgrade_survives_a_driver_killed_at_any_moment(role, bad):
    for moment in range(1, 60, 3):
        world = with_new_release()
        world.logs["enrich"].sets_aside[NEW] = bad
        runbook = upgrade(world)
        for _ in range(moment):
            world.tick()
        record = world.owner("enrich")
        number = record.owner if role == "owner" else record.next
        if number is not None:
            world.kill_driver("enrich", number)
        ended(world, runbook)
        assert release_of(world) == (NEW if runbook.ok else OLD), moment
        assert not (bad and runbook.ok)
        assert world.state("enrich") is State.RUNNING


def test_an_abort_of_an_upgrade_leads_back_to_the_old_code():
    for moment in range(1, 60, 2):
        world = with_new_release()
        runbook = upgrade(world)
        if not runbook.abort_after(moment):
            break
        assert release_of(world) == (OLD if world.wanted("enrich").release == OLD else NEW)
        assert world.state("enrich") is State.RUNNING


def test_bad_code_is_rolled_back_despite_a_lost_host():
    for moment in range(1, 60, 5):
        world = with_new_release()
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
        assert release_of(world) == OLD


def test_a_standby_runs_the_accepted_code():
    world = World(tiers=(TIERS[0].model_copy(update={"standby": Standby.WARM}), *TIERS[1:]))
    world.publish(OLD)
    world.bring_up()
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
def test_code_that_does_no_worse_than_before_passes_its_trial(before, after):
    problem = fault(before, after)
    if (
        after.records_in
        and before.records_in
        and after.quarantined * before.records_in <= before.quarantined * after.records_in
    ):
        assert (
            problem is None
            or "no output from" in problem
            or after.records_in < before.records_in / 2 < after.waiting
        )
    if not after.records_in:
        assert (problem is None) is (not after.waiting or before.records_in < MIN_RECORDS)
    if problem is None and after.records_in >= MIN_RECORDS:
        usual = before.quarantined / before.records_in if before.records_in else 0.0
        assert after.quarantined / after.records_in <= usual + QUARANTINE_MARGIN
    assert (fault(None, after) is None) is not (after.records_in == 0 and after.waiting >= MIN_RECORDS)


def test_code_that_is_much_slower_while_records_wait_fails_its_trial():
    before = Flowed(
        seconds=600.0, records_in=60_000, records_out=60_000, quarantined=0, waiting=40, restarts=0
    )
    slow = Flowed(
        seconds=TRIAL_SECONDS, records_in=300, records_out=300, quarantined=0, waiting=1700, restarts=0
    )
    assert fault(before, slow) == "300 records were processed in 20 s, before 2000 in that time; 1700 wait"
    assert fault(before, slow.model_copy(update={"waiting": 40})) is None, "fewer records came in"
    assert fault(before, slow.model_copy(update={"records_in": 1900})) is None, "more records came in"


@given(flows(restarts=3))
def test_code_whose_query_failed_fails_its_trial(after):
    assert "its query failed" in str(fault(None, after))
