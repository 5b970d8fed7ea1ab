"""How the step verify judges receipts, also those of an owner that hung and stopped long after its
successor took over.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation.world import World

from sluice_ops.controller.steps.verify import ledger_went_on
from sluice_ops.model.assignment import HUNG_SINCE
from sluice_ops.model.change import Step
from sluice_ops.model.incarnation import Phase, Receipt

HUNG = (
    f"killed with its container ({HUNG_SINCE} 18:03:22 UTC: its driver's JVM was stopped; its agent ended it)"
)


@pytest.fixture
def world():
    return World().bring_up()


def receipt(at, batch):
    return Receipt(positions={"hits/0": at}, batch=batch, at=1.0)


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_receipt_that_the_ledger_has_passed_is_ignored(before, after):
    assert ledger_went_on(receipt(before, before), receipt(after, after)) is (after > before)
    assert ledger_went_on(receipt(before, None), receipt(after, after)), (
        "the old incarnation never wrote a batch"
    )
    assert not ledger_went_on(receipt(before, None), receipt(after, None)), (
        "a tier that writes streams, or an empty ledger"
    )


def begin_handover(world):
    """Hand a tier over; return the runbook at the moment when both incarnations run."""
    runbook = world.begin("m1", kind="migrate", tier="counts", to="h3")
    world.until(lambda: world.owner("counts").phase is Phase.CUT)
    return runbook


def test_an_owner_that_hung_and_stopped_late_does_not_fail_verify(world):
    runbook = begin_handover(world)
    old = world.driver("counts", 1)
    old._receipt = lambda: receipt(1, 3)  # the state at the moment of its stop
    new = world.driver("counts", 2)
    new.started_from = receipt(50, 7)
    world.until(lambda: runbook.ended)
    assert runbook.ok, runbook.results
    sentence = runbook.results[Step.VERIFY].sentence
    assert "1 stopped without the ledger's last batches (its last: batch 3)" in sentence
    assert "2 went on from the ledger's end, batch 7, so nothing is missing" in sentence


def test_verify_reports_since_when_an_owner_hung(world):
    runbook = begin_handover(world)
    host = world.placement("counts").driver
    world.driver("counts", 1).stuck = True
    world.agents[host].kill_driver("driver-counts-1", HUNG)
    world.until(lambda: runbook.ended)
    assert runbook.ok, runbook.results
    assert (
        f"1 left no receipt (it ended on {host}: {HUNG}); 2 went on from the last commit"
        in runbook.results[Step.VERIFY].sentence
    )
