"""An abandoned change: its runbook was killed between two steps, or a step failed without a
runbook.
"""

import pytest
from simulation.world import settled

from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeRecord, ChangeState, Step
from sluice_ops.operations.requests import operation_id
from sluice_ops.process.durations import TimestampAges

HOUR = 3600.0
JUMP = 3600.123


@pytest.fixture
def world():
    return settled()


def abandoned_drain(world, deadline, until=lambda runbook: runbook.current is Step.CUT):
    """Begin to drain a host, and end the runbook at the given moment."""
    runbook = world.begin("d1", deadline=deadline, kind="drain", host=world.placement("counts").driver)
    world.until(lambda: until(runbook))
    world.runbooks.clear()
    return runbook


def state(world):
    return world.channel.read(paths.change("d1"), ChangeRecord).value.state


def started_at(world):
    return world.channel.read(paths.change("d1"), ChangeRecord).value.started_at


def seconds_until_end(world):
    """Let time pass until the change ends; return how long the change existed. Unit: seconds."""
    world.until(lambda: state(world) is not ChangeState.ACTIVE, 800)
    return world.clock() - started_at(world)


def check_aborted(world, runbook):
    assert state(world) is ChangeState.ABORTED
    world.settle()
    world.check_settled()
    assert world.host_state(runbook.spec.host) is HostState.UP


def test_an_abandoned_change_is_aborted_soon_after_its_deadline(world):
    runbook = abandoned_drain(world, 120.0)
    assert 150.0 < seconds_until_end(world) < 155.0
    assert any(
        "change d1 is aborted and its maintenance lock released: "
        "its deadline passed more than 30 s ago, and no step is posted" in sentence
        for sentence in world.sentences
    )
    check_aborted(world, runbook)


def test_a_change_whose_step_failed_at_the_deadline_is_aborted(world):
    def hang_drivers(runbook):
        for name in world.specs:
            if world.next_driver(name) is not None:
                world.next_driver(name).stuck = True
        return runbook.current is Step.PREPARE

    runbook = abandoned_drain(world, 60.0, hang_drivers)
    for _ in range(3):
        hang_drivers(runbook)
        world.tick()
    assert 90.0 < seconds_until_end(world) < 95.0
    check_aborted(world, runbook)


@pytest.mark.parametrize("deadline", [HOUR * 2, None])
def test_a_change_with_a_late_or_unknown_deadline_has_an_hour(world, deadline):
    runbook = abandoned_drain(world, deadline or 60.0)
    if deadline is None:  # an older version began the change
        record = world.channel.read(paths.change("d1"), ChangeRecord).value
        world.channel.put(paths.change("d1"), record.model_copy(update={"deadline_seconds": None}))
    world.until(lambda: world.channel.exists(paths.result(operation_id("d1", Step.CUT))))
    since = world.clock()
    world.tick(HOUR - 200)
    assert state(world) is ChangeState.ACTIVE
    seconds_until_end(world)
    assert HOUR - 10 < world.clock() - since < HOUR + 10
    check_aborted(world, runbook)


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_a_clock_that_jumps_changes_nothing(world, jump):
    runbook = abandoned_drain(world, 120.0)
    world.ahead += jump
    assert 150.0 < seconds_until_end(world) < 155.0
    check_aborted(world, runbook)


def test_a_new_controller_counts_from_its_first_look(world):
    runbook = abandoned_drain(world, 120.0)
    for _ in range(100):
        world.tick()
    world.ages = TimestampAges(world.clock)
    since = world.clock()
    seconds_until_end(world)
    assert 150.0 < world.clock() - since < 155.0
    check_aborted(world, runbook)
