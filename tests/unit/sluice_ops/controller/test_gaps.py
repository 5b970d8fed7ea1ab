"""The gap of a handover is reported some seconds later: receipts are written when the gap is known,
or will never be known.
"""

import pytest
from simulation.world import World

from sluice_ops.controller.steps.verify import GAP_SECONDS
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Step
from sluice_ops.planning.placement.pace import widest_gap


@pytest.fixture
def world():
    return World().bring_up()


def migrate(world, gap_after, deadline=300.0):
    """Move a tier whose new driver reports its gap after `gap_after` seconds; return the runbook
    and its record.
    """
    world.logs["enrich"].gap_after = gap_after
    runbook = world.begin("m1", deadline, kind="migrate", tier="enrich", to="h3")
    world.settle()
    assert runbook.ok, runbook.results
    return runbook, world.channel.read(paths.change("m1"), ChangeRecord).value


def test_a_gap_reported_after_the_handover_is_in_the_receipts(world):
    runbook, change = migrate(world, gap_after=5.0)
    assert widest_gap(change) == 0.2
    assert any(
        "waiting at most 10 s until enrich/2 reports the gap in the output" in sentence
        for sentence in world.sentences
    )
    assert "reported no gap" not in runbook.results[Step.VERIFY].sentence


def test_a_gap_that_is_never_reported_is_named_and_delays_no_step(world):
    runbook, change = migrate(world, gap_after=None)
    assert widest_gap(change) is None
    assert "enrich/2 reported no gap within 10 s" in runbook.results[Step.VERIFY].sentence
    assert change.took[Step.VERIFY] <= GAP_SECONDS + 2


def test_a_short_deadline_does_not_fail_for_a_missing_gap(world):
    runbook, _ = migrate(world, gap_after=None, deadline=8.0)
    assert "enrich/2 reported no gap within 4 s" in runbook.results[Step.VERIFY].sentence
