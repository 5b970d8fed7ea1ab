"""A game day injects one fault into a tier that runs well, and judges it by its promise."""

import pytest
from simulation.world import TIERS, World

from sluice_ops.model import paths
from sluice_ops.model.alert import Alert, AlertRecord, Severity
from sluice_ops.model.assignment import Assignment
from sluice_ops.model.change import ChangeRecord, ChangeState, Step
from sluice_ops.model.tier import Standby


def running(**more):
    world = World(**more)
    world.bring_up()
    for _ in range(60):
        world.tick()
    return world


@pytest.fixture
def world():
    return running()


def game_day(world, fault="kill-driver", tier="enrich", **more):
    runbook = world.begin("g1", kind="game-day", fault=fault, tier=tier, **more)
    world.until(lambda: runbook.ended, 400)
    return runbook


def record(world):
    return world.channel.read(paths.change("g1"), ChangeRecord).value


def orders(world):
    reads = [world.channel.read(paths.assignment(name), Assignment) for name in world.agents]
    return [read.value.fault for read in reads if read is not None and read.value.fault is not None]


@pytest.mark.parametrize("fault", ["kill-driver", "freeze-driver", "kill-worker", "kill-agent"])
def test_a_kept_promise_ends_the_game_day_well(world, fault):
    before = world.owner("enrich").owner
    runbook = game_day(world, fault)
    assert runbook.ok, runbook.results
    replaced = fault.endswith("driver")
    assert (world.owner("enrich").owner > before) is replaced
    sentence = runbook.results[Step.JUDGE].sentence
    assert sentence.startswith(f"{fault} of enrich: kept: ")
    assert sentence.endswith("kept: no record is lost")
    assert (record(world).receipts["enrich"]["gap_seconds"] == 0.2) is replaced
    assert not orders(world)
    world.settle()
    world.check_settled()


def test_an_agent_that_injects_nothing_ends_the_game_day(world):
    world.agents[world.placement("enrich").driver]._inject = lambda _: None
    runbook = world.begin("g1", kind="game-day", fault="kill-driver", tier="enrich", deadline=60.0)
    world.until(lambda: runbook.ended)
    assert "is it of an older version" in runbook.results[Step.INJECT].sentence
    assert record(world).state is ChangeState.ABORTED
    assert not orders(world), "an agent that is upgraded later finds no order"


def test_a_gap_over_the_limit_names_the_promise(world):
    number = world.owner("enrich").owner
    runbook = world.begin("g1", kind="game-day", fault="kill-driver", tier="enrich")
    world.until(lambda: world.owner("enrich").owner > number)
    world.logs["enrich"].gap_after = None
    world.until(lambda: (driver := world.driver("enrich")) is not None and driver.measured)
    world.driver("enrich").gap_seconds = 25.0
    world.driver("enrich")._report()
    world.until(lambda: runbook.ended)
    assert not runbook.ok
    sentence = runbook.results[Step.JUDGE].sentence
    assert "broken: records come out again after 25.0 s (promised: within 20 s)" in sentence
    assert '"Faults" of the documentation: a driver is killed' in sentence
    assert record(world).receipts["enrich"]["promises"][0]["kept"] is False
    assert "no agent has an order for a fault any more" in runbook.results[Step.ABORT].sentence


def test_without_records_the_fault_cannot_be_judged(world):
    world.logs["enrich"].gap_after = None
    runbook = game_day(world)
    assert not runbook.ok
    assert "did records come in?" in runbook.results[Step.JUDGE].sentence


def test_an_abort_takes_the_order_back(world):
    agent = world.agents[world.placement("enrich").driver]
    agent.step, step = lambda: None, agent.step
    runbook = world.begin("g1", kind="game-day", fault="kill-driver", tier="enrich")
    world.until(lambda: orders(world))
    runbook.abort()
    world.until(lambda: not orders(world))
    assert record(world).state is ChangeState.ABORTED
    agent.step = step
    number = world.owner("enrich").owner
    world.settle()
    assert world.owner("enrich").owner == number


def refusal(world, **more):
    result = game_day(world, **more).results[Step.PREFLIGHT]
    assert not result.ok
    assert not orders(world)
    return result.sentence


def test_unknown_faults_and_tiers_that_do_not_run_are_refused(world):
    assert "faults: kill-driver, freeze-driver" in refusal(world, fault="unplug")
    world = running()
    world.want("enrich", paused=True)
    world.settle()
    assert "tier enrich is paused" in refusal(world)


def test_a_platform_that_is_not_well_is_refused(world):
    alert = Alert(
        kind="records-lost",
        subject="counts",
        severity=Severity.CRITICAL,
        wait=0,
        happened="",
        did="",
        do="",
        since=1.0,
        told_at=2.0,
    )
    world.channel.put(paths.ALERTS, AlertRecord(alerts={alert.key: alert}))
    assert "a critical alert lasts: records-lost:counts" in refusal(world)


def test_a_tier_that_failed_a_moment_ago_is_refused():
    world = World()
    world.bring_up()
    world.kill_driver("enrich")
    world.settle()
    assert "failed a moment ago" in refusal(world)


def test_another_change_holds_a_game_day_off(world):
    drain = world.begin("d1", kind="drain", host="h1")
    world.until(lambda: drain.current is Step.CUT)
    assert "has held the maintenance lock" in refusal(world)


def test_a_silent_agent_cannot_inject(world):
    world.agents[world.placement("enrich").driver].die()
    world.tick()
    assert "does not answer" in refusal(world)


@pytest.mark.parametrize(("standby", "told"), [(Standby.HOT, "has a hot standby"), (Standby.WARM, None)])
def test_a_standby_decides_how_the_fault_is_judged(standby, told):
    outbound = TIERS[-1].model_copy(update={"standby": standby})
    world = running(tiers=(*TIERS[:-1], outbound))
    if told is not None:
        assert told in refusal(world, tier="outbound")
        return
    runbook = game_day(world, tier="outbound")
    assert runbook.ok, runbook.results
    assert "(promised: within 2 s)" in runbook.results[Step.JUDGE].sentence
