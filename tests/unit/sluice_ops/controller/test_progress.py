"""Progress of a change, and whether it is slow or stuck, on a pipeline that is drained."""

import pytest
from simulation.world import World

from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.queries.progress import STUCK_SECONDS, Verdict, progress
from sluice_ops.snapshot.view import read_view


@pytest.fixture
def world():
    return World().bring_up()


def progress_of(world, change="d1"):
    return progress(read_view(world.channel), change, world.now)


def test_progress_grows_and_the_remaining_time_shrinks(world):
    assert progress_of(world) is None
    runbook = world.begin("d1", kind="drain", host=world.placement("entry").driver)
    moves_done, left = [], []
    while not runbook.ended:
        world.tick()
        now = progress_of(world)
        if now is not None:
            moves_done.append((now.prepared, now.handed_over))
            left.append(now.seconds_left)
            assert now.verdict is Verdict.ON_TIME
    assert moves_done == sorted(moves_done)
    assert left[:-1] == sorted(left[:-1], reverse=True), "the last prediction knows the times of this change"
    assert (moves_done[-1], left[-1]) == ((progress_of(world).moves,) * 2, 0.0)


def test_the_times_of_a_change_predict_the_next_one(world):
    drained = world.placement("entry").driver
    runbook = world.begin("d1", kind="drain", host=drained)
    world.until(lambda: runbook.ended)
    done = world.channel.read(paths.change("d1"), ChangeRecord).value
    assert {Step.PREPARE, Step.CUT, Step.VERIFY, Step.RELEASE} <= {*done.took}
    seconds_per_move = (done.took[Step.PREPARE] + done.took[Step.CUT]) / len(done.plan.moves)
    world.settle()
    free = next(name for name in world.agents if name not in {drained, world.placement("counts").driver})
    again = world.begin("d2", kind="migrate", tier="counts", to=free)
    world.until(lambda: again.ended)
    planned = world.channel.read(paths.change("d2"), ChangeRecord).value.plan
    assert planned.predicted_seconds == pytest.approx(seconds_per_move * len(planned.moves))


def test_the_remaining_time_of_a_reboot_includes_the_boot(world):
    first = world.placement("entry").driver
    before = world.begin("b1", kind="reboot", host=first)
    world.until(lambda: before.ended)
    world.settle()
    took = world.channel.read(paths.change("b1"), ChangeRecord).value.took
    runbook = world.begin("b2", kind="reboot", host=world.placement("entry").driver)
    world.until(lambda: progress_of(world, "b2") is not None)
    now, planned = progress_of(world, "b2"), world.channel.read(paths.change("b2"), ChangeRecord).value.plan
    moves = planned.predicted_seconds - sum(
        took[step] for step in took if step not in {Step.PREFLIGHT, Step.PREPARE, Step.CUT}
    )
    assert moves > 0.0
    assert now.seconds_left == pytest.approx(planned.predicted_seconds, abs=2.0)
    world.until(lambda: runbook.ended)
    assert progress_of(world, "b2").seconds_left == 0.0


def test_a_change_that_waits_long_is_stuck_and_names_the_missing_event(world):
    host = world.placement("entry").driver
    before = world.begin("d1", kind="drain", host=host)
    world.until(lambda: before.ended)
    back = world.begin("r1", kind="return", host=host)
    world.until(lambda: back.ended)
    runbook = world.begin("d2", kind="drain", host=world.placement("entry").driver, deadline=10_000.0)
    world.until(lambda: world.next_driver("entry") is not None)
    world.next_driver("entry").stuck = True
    world.until(lambda: progress_of(world, "d2").verdict is Verdict.SLOW, int(STUCK_SECONDS))
    world.until(lambda: progress_of(world, "d2").verdict is Verdict.STUCK)
    now = progress_of(world, "d2")
    assert "entry/3 to be ready" in now.waits_for
    assert world.now - now.waits_since > STUCK_SECONDS
    assert "STUCK" in now.sentence(world.now)
    assert "sluice abort" in now.sentence(world.now)
    assert not runbook.ended
