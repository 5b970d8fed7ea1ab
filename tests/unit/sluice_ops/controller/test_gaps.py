"""The gap that a hand-over leaves is told some seconds after it: the receipts are cut when it has
been, or never will be.
"""

import pytest
from simulation.world import World

from sluice_ops.controller.steps.verify import GAP_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.planning.placement.pace import widest_gap


@pytest.fixture
def world():
    made = World()
    made.want()
    made.settle()
    return made


def moved(world, gap_after, deadline=300.0):
    """Move a tier whose new driver tells its gap so long after it took over; return the runbook and
    what was recorded.
    """
    world.logs["enrich"].gap_after = gap_after
    runbook = world.begin("m1", deadline, kind="migrate", tier="enrich", to="h3")
    world.settle()
    assert runbook.ok, runbook.results
    return runbook, world.channel.read(paths.change("m1"), ChangeRecord).value


def test_a_gap_that_is_told_after_the_hand_over_is_in_the_receipts(world):
    runbook, change = moved(world, gap_after=5.0)
    assert widest_gap(change) == 0.2
    assert any(
        "waiting at most 10 s until enrich/2 reports the gap in the output" in sentence
        for sentence in world.sentences
    )
    assert "reported no gap" not in runbook.results[Step.VERIFY].sentence


def test_a_gap_that_is_never_told_is_said_and_holds_nothing_up(world):
    runbook, change = moved(world, gap_after=None)
    assert widest_gap(change) is None
    assert "enrich/2 reported no gap within 10 s" in runbook.results[Step.VERIFY].sentence
    assert change.took[Step.VERIFY] <= GAP_SECONDS + 2


def test_a_short_deadline_does_not_fail_for_want_of_a_gap(world):
    runbook, _ = moved(world, gap_after=None, deadline=8.0)
    assert "enrich/2 reported no gap within 4 s" in runbook.results[Step.VERIFY].sentence
