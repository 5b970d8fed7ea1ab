"""Times of starts, stops and aborts are recorded, each beside its predicted time."""

import pytest
from simulation.world import settled

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, ChangeSpec, Operation, Step
from sluice_ops.operations.requests import operation_id, read_result


@pytest.fixture
def world():
    return settled()


def stop(world, name="counts"):
    world.want(name, running=False)
    world.settle()


def test_a_start_is_timed_and_predicts_the_next_start(world):
    first = world.incarnation("counts", 1).start
    assert (first.by, first.predicted_seconds) == ("test", None), (
        "without an earlier start, no time is predicted"
    )
    assert first.seconds > 0
    stop(world)
    world.want("counts", by="cli:anna")
    world.settle()
    second = world.incarnation("counts", 2).start
    assert (second.by, second.predicted_seconds) == ("cli:anna", first.seconds)
    assert second.seconds > 0


def test_a_stop_is_timed_and_predicts_the_next_stop(world):
    stop(world)
    first = world.incarnation("counts", 1).stop
    assert first.predicted_seconds is None
    assert first.seconds > 0
    stop(world, "outbound")
    assert world.incarnation("outbound", 1).stop.predicted_seconds == first.seconds


def test_an_automatic_start_is_not_timed(world):
    world.kill_driver("counts")
    world.settle()
    assert world.owner("counts").owner == 2
    assert world.incarnation("counts", 2).start is None


def test_a_start_after_a_stop_of_the_platform_is_no_gap(world):
    world.driver("counts").stop()
    world.kill_driver("enrich")
    world.settle()
    assert [world.incarnation(name, 2).after_stop for name in ("counts", "enrich")] == [True, False]
    assert [world.incarnation(name, 2).failures for name in ("counts", "enrich")] == [0, 1]


def test_a_start_continues_in_the_next_incarnation_after_a_death(world):
    stop(world)
    world.logs["counts"].hangs = True
    world.want("counts", by="cli:anna")
    world.until(lambda: world.driver("counts", 2) is not None)
    world.logs["counts"].hangs = False
    world.kill_driver("counts", 2)
    world.settle()
    assert world.owner("counts").owner == 3
    assert world.incarnation("counts", 2).start is None
    start = world.incarnation("counts", 3).start
    assert start.by == "cli:anna"
    assert start.seconds > world.incarnation("counts", 1).start.seconds


def test_the_stop_of_a_dead_tier_is_not_timed(world):
    world.give_up("counts")
    stop(world)
    assert all(
        world.incarnation("counts", number).stop is None
        for number in range(1, world.owner("counts").owner + 1)
    )


def test_a_new_request_starts_a_given_up_tier_and_is_timed(world):
    world.give_up("counts")
    assert all(
        world.incarnation("counts", number).start is None
        for number in range(2, world.owner("counts").owner + 1)
    )
    world.want("counts", attempt=1)
    world.settle()
    assert world.incarnation("counts", world.owner("counts").owner).start.seconds > 0


def test_a_start_of_a_running_tier_does_not_count_as_its_next_start(world):
    world.want("counts", attempt=1)
    world.kill_driver("counts")
    world.settle()
    assert world.incarnation("counts", 2).start is None


def test_a_withdrawn_stop_is_not_complete(world):
    world.driver("counts").stuck = True
    world.want("counts", running=False)
    world.until(lambda: world.owner("counts").stopped)
    world.want("counts")
    world.settle()
    assert world.incarnation("counts", 1).stop.seconds is None
    assert world.incarnation("counts", 2).start.seconds > 0


def test_an_abort_is_timed_and_predicts_the_next_abort(world):
    for change in ("d1", "d2"):
        runbook = world.begin(change, kind="drain", host=world.placement("counts").driver)
        world.until(lambda: world.next_driver("counts") is not None)
        runbook.abort()
        world.settle()
    first, second = (world.channel.read(paths.change(change), ChangeRecord).value for change in ("d1", "d2"))
    assert first.abort_predicted_seconds is None
    assert second.abort_predicted_seconds == first.took[Step.ABORT] > 0


@pytest.mark.parametrize("kind", ["start", "stop"])
def test_a_step_begins_neither_a_start_nor_a_stop(world, kind):
    runbook = world.begin("s1", kind=kind, tier="counts")
    world.until(lambda: runbook.ended)
    assert runbook.results[Step.PREFLIGHT].sentence == (
        f"a {kind} has no steps; run `sluice {kind} counts`, which only writes the request"
    )
    assert not world.channel.exists(paths.LOCK)


def test_a_dry_run_of_a_burst_plans_with_the_instances_to_launch(world):
    spec = ChangeSpec(kind="burst", tier="enrich", k=2)
    identity = operation_id("b1", Step.PREFLIGHT)
    operation = Operation(
        id=identity,
        change="b1",
        step=Step.PREFLIGHT,
        spec=spec,
        by="test",
        posted_at=world.wall(),
        dry_run=True,
    )
    world.channel.create(paths.operation(identity), operation)
    really = world.begin("b2", **spec.model_dump(exclude_none=True))
    world.until(lambda: really.ended)
    result = read_result(world.channel, identity)
    (move,) = result.details["plan"]["moves"]
    assert move["after"]["slots"][-2:] == ["ec2-new-1", "ec2-new-1"]
    assert (
        result.details["plan"]["unpredicted"]
        == "the time until the agents of the new instances have registered"
    )
    assert "no host at zone:ec2 is up" in really.results[Step.PREFLIGHT].sentence, (
        "instances that do not run yet count only in the dry run"
    )
