"""Handovers of a tier while its sink takes no records."""

import pytest
from simulation.world import World

from sluice_ops.model.change import Step


@pytest.fixture
def world():
    return World().bring_up()


def migrate(world, tier, sink_away, deadline=300.0):
    """Move a tier while some of its incarnations cannot reach its sink; return the runbook."""
    world.logs[tier].sink_away = sink_away
    host = next(name for name in ("h2", "h3") if name != world.placement(tier).driver)
    runbook = world.begin("m1", deadline, kind="migrate", tier=tier, to=host)
    world.settle()
    return runbook


def test_a_tier_moves_although_its_sink_takes_no_records(world):
    runbook = migrate(world, "outbound", (1, 2))
    assert runbook.ok, runbook.results
    assert world.owner("outbound").owner == 2
    assert "2 goes on where 1 stopped" in runbook.results[Step.VERIFY].sentence


@pytest.mark.parametrize(("tier", "sink_away"), [("outbound", (2,)), ("counts", (1, 2))])
def test_a_handover_waits_for_a_turn_that_may_come(world, tier, sink_away):
    """Only the next incarnation cannot reach the sink; or the tier has state."""
    runbook = migrate(world, tier, sink_away, deadline=60.0)
    assert not runbook.ok
    assert world.owner(tier).owner == 1
