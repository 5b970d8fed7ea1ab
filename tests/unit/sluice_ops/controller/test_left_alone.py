"""A change that nobody goes on with: its runbook was killed between two steps, or a step failed
with nobody there.
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


def left_alone(world, deadline, until=lambda runbook: runbook.current is Step.CUT):
    """Begin to drain a host, and end the runbook there."""
    runbook = world.begin("d1", deadline=deadline, kind="drain", host=world.placement("counts").driver)
    world.until(lambda: until(runbook))
    world.runbooks.clear()
    return runbook


def state(world):
    return world.channel.read(paths.change("d1"), ChangeRecord).value.state


def begun(world):
    return world.channel.read(paths.change("d1"), ChangeRecord).value.started_at


def lasts(world):
    """Let time pass until the change ends; return for how long it was there."""
    world.until(lambda: state(world) is not ChangeState.ACTIVE, 800)
    return world.clock() - begun(world)


def freed(world, runbook):
    assert state(world) is ChangeState.ABORTED
    world.settle()
    world.check_settled()
    assert world.host_state(runbook.spec.host) is HostState.UP


def test_it_is_aborted_soon_after_its_deadline(world):
    runbook = left_alone(world, 120.0)
    assert 150.0 < lasts(world) < 155.0
    assert any(
        "change d1 is aborted and its maintenance lock released: "
        "its deadline passed more than 30 s ago, and no step is posted" in said
        for said in world.sentences
    )
    freed(world, runbook)


def test_one_whose_step_failed_at_the_deadline_is_too(world):
    def hangs(runbook):
        for name in world.specs:
            if world.next_driver(name) is not None:
                world.next_driver(name).stuck = True
        return runbook.current is Step.PREPARE

    runbook = left_alone(world, 60.0, hangs)
    for _ in range(3):
        hangs(runbook)
        world.tick()
    assert 90.0 < lasts(world) < 95.0
    freed(world, runbook)


@pytest.mark.parametrize("deadline", [HOUR * 2, None])
def test_with_a_later_deadline_or_none_that_is_known_it_has_an_hour(world, deadline):
    runbook = left_alone(world, deadline or 60.0)
    if deadline is None:  # an older version has begun it
        record = world.channel.read(paths.change("d1"), ChangeRecord).value
        world.channel.put(paths.change("d1"), record.model_copy(update={"deadline_seconds": None}))
    world.until(lambda: world.channel.exists(paths.result(operation_id("d1", Step.CUT))))
    since = world.clock()
    world.tick(HOUR - 200)
    assert state(world) is ChangeState.ACTIVE
    lasts(world)
    assert HOUR - 10 < world.clock() - since < HOUR + 10
    freed(world, runbook)


@pytest.mark.parametrize("jump", [JUMP, -JUMP])
def test_a_clock_that_jumps_changes_nothing(world, jump):
    runbook = left_alone(world, 120.0)
    world.ahead += jump
    assert 150.0 < lasts(world) < 155.0
    freed(world, runbook)


def test_a_controller_that_comes_anew_counts_from_when_it_first_sees_it(world):
    runbook = left_alone(world, 120.0)
    for _ in range(100):
        world.tick()
    world.ages = TimestampAges(world.clock)
    since = world.clock()
    lasts(world)
    assert 150.0 < world.clock() - since < 155.0
    freed(world, runbook)
