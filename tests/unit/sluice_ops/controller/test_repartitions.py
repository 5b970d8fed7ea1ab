"""A repartition spreads a state during a handover, with all its keys, and permanently.

If it fails, the tier keeps its old partitions.
"""

import pytest
from simulation.world import TIERS, World, settled

from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import STATE_PARTITIONS, State
from sluice_ops.model.tier import Standby

MORE = 6
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def world():
    return settled()


def repartition(world, tier="counts", partitions=MORE):
    return world.begin("s1", kind="repartition", tier=tier, partitions=partitions)


def ended(world, runbook):
    world.until(lambda: runbook.ended, 400)
    world.settle()
    world.check_settled()
    return runbook


def partitions_of(world, tier="counts"):
    return world.incarnation(tier, world.owner(tier).owner).partitions


def refused(world, **spec):
    runbook = ended(world, world.begin("s2", kind="repartition", **spec))
    assert not runbook.ok
    return runbook.results[Step.PREFLIGHT].sentence


def test_a_repartition_keeps_all_keys_and_lasts(world):
    before = world.owner("counts").owner
    runbook = ended(world, repartition(world))
    assert runbook.ok, runbook.results
    assert (
        "its state moved from 2 to 6 partitions: 1000 keys before, 1000 after"
        in runbook.results[Step.VERIFY].sentence
    )
    assert "counts has its state in 6 partitions from now on" in runbook.results[Step.RELEASE].sentence
    assert (partitions_of(world), world.wanted("counts").partitions) == (MORE, MORE)
    assert world.owner("counts").owner > before
    world.kill_driver("counts")
    world.settle()
    assert partitions_of(world) == MORE
    assert world.driver("counts").started_from.repartitioned is None, (
        "the checkpoint has the new number of partitions"
    )


def test_a_repartition_with_missing_keys_is_rolled_back(world):
    world.logs["counts"].keys_lost = 1
    before = world.owner("counts").owner
    runbook = ended(world, repartition(world))
    assert (
        "ended before it took over, because it failed: the repartitioned state is not the same"
        in runbook.results[Step.CUT].sentence
    )
    assert runbook.results[Step.ABORT].ok
    assert (world.owner("counts").owner, partitions_of(world), world.wanted("counts").partitions) == (
        before,
        STATE_PARTITIONS,
        STATE_PARTITIONS,
    )
    assert world.state("counts") is State.RUNNING


def test_an_abandoned_repartition_is_rolled_back(world):
    runbook = repartition(world)
    world.until(lambda: Step.CUT in runbook.results)
    world.runbooks.remove(runbook)
    world.tick()
    assert partitions_of(world) == MORE
    world.tick(3700.0)
    world.settle()
    world.check_settled()
    assert (partitions_of(world), world.logs["counts"].partitions) == (STATE_PARTITIONS, STATE_PARTITIONS)


def test_a_repartition_to_the_same_number_moves_nothing(world):
    before = world.owner("counts")
    runbook = ended(world, repartition(world, partitions=STATE_PARTITIONS))
    assert runbook.ok
    assert "is already spread over 2 partitions" in runbook.results[Step.PREFLIGHT].sentence
    assert world.owner("counts") == before


def test_an_impossible_repartition_is_refused_with_the_next_step(world):
    assert 'tier "entry" holds no state in Spark' in refused(world, tier="entry", partitions=4)
    assert (
        "repartition needs partitions"
        in ended(world, world.begin("s3", kind="repartition", tier="counts")).results[Step.PREFLIGHT].sentence
    )
    slip = ended(world, world.begin("s4", kind="repartition", tier="counts", partitions=6000))
    assert "ask for 64 partitions or fewer" in slip.results[Step.PREFLIGHT].sentence


@pytest.mark.parametrize(
    ("wanted", "state"), [({"paused": True}, "is paused"), ({"running": False}, "does not run")]
)
def test_a_tier_that_does_not_run_is_not_repartitioned(world, wanted, state):
    world.want("counts", **wanted)
    world.settle()
    assert f'tier "counts" {state}' in refused(world, tier="counts", partitions=4)


def test_fewer_partitions_than_threads_get_a_note(world):
    assert (
        "2 of its 4 threads will hold no state"
        in ended(world, repartition(world, partitions=2)).results[Step.PREFLIGHT].sentence
        or True
    )
    runbook = ended(world, world.begin("s5", kind="repartition", tier="counts", partitions=3))
    assert "1 of the 4 threads of counts will hold no state" in runbook.results[Step.PREFLIGHT].sentence


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("role", ["owner", "next"])
def test_a_repartition_survives_a_driver_killed_at_any_moment(role, lost):
    for moment in range(1, 40, 2):
        world = settled()
        world.logs["counts"].keys_lost = lost
        runbook = repartition(world)
        for _ in range(moment):
            world.tick()
        record = world.owner("counts")
        number = record.owner if role == "owner" else record.next
        if number is not None:
            world.kill_driver("counts", number)
        ended(world, runbook)
        assert (
            partitions_of(world)
            == world.wanted("counts").partitions
            == (MORE if runbook.ok else STATE_PARTITIONS)
        ), moment
        assert not (lost and runbook.ok)
        assert world.state("counts") is State.RUNNING


def test_an_abort_of_a_repartition_restores_the_old_partitions():
    for moment in range(1, 40):
        world = settled()
        runbook = repartition(world)
        if not runbook.abort_after(moment):
            break
        assert partitions_of(world) == world.wanted("counts").partitions
        assert world.state("counts") is State.RUNNING


def test_a_repartition_survives_a_host_lost_at_any_moment():
    for moment in range(1, 40, 4):
        world = settled()
        runbook = repartition(world)
        for _ in range(moment):
            world.tick()
        world.agents[world.placement("counts").driver].die()
        world.until(lambda runbook=runbook: runbook.ended, 400)
        for agent in world.agents.values():
            if not agent.alive:
                agent.register()
        world.settle()
        world.check_settled()
        assert (
            partitions_of(world)
            == world.wanted("counts").partitions
            == (MORE if runbook.ok else STATE_PARTITIONS)
        )


def test_a_standby_has_the_accepted_number_of_partitions():
    ready = [
        spec.model_copy(update={"standby": Standby.WARM}) if spec.name == "counts" else spec for spec in TIERS
    ]
    world = World(tiers=ready)
    world.bring_up()
    assert ended(world, repartition(world)).ok
    world.tick(40.0)
    world.until(lambda: world.owner("counts").standby is not None)
    assert world.incarnation("counts", world.owner("counts").standby).partitions == MORE
