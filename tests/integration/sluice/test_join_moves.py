"""A running tier that joins three inputs and counts in windows is moved, killed and repartitioned
while records flow: each record is counted once, and the windows are those of the input.
"""

import pytest

from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import Feed, assert_paid, ends, feeding
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.stateful_pipeline"
TIER = "paid"
RATE = 100

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def test_a_chain_with_windows_counts_once_through_a_move_and_kills(lab: Lab) -> None:
    feed = Feed(lab)
    with feeding(feed, RATE, feed.paid):
        _move_and_kill(lab)
    assert_paid(lab, feed)


def _move_and_kill(lab: Lab) -> None:
    lab.start_owner(TIER, 1, "h1")
    until("the tier counts", lambda: ends(lab, TIER))
    lab.cut(TIER, 1, 2, "h2")
    lab.wait_caught_up(TIER, 2)
    lab.set_owner(TIER, 2)
    lab.wait_for(TIER, 1, State.STOPPED)
    lab.stop(TIER, 1)

    # the driver is killed, and one on another host continues from its checkpoint
    _wait_batches(lab, 3)
    lab.driver(TIER, 2).kill()
    lab.stop(TIER, 2)
    lab.start_owner(TIER, 3, "h3")
    lab.wait_caught_up(TIER, 3)
    assert "begins from a checkpoint" in lab.log(TIER, 3)

    # the executor is killed, and the next incarnation spreads the state over more partitions
    lab.kill_executor(TIER, 3)
    until("the driver has lost its executor", lambda: "Lost executor" in lab.log(TIER, 3))
    _wait_batches(lab, 2)
    lab.cut(TIER, 3, 4, "h1", partitions=3)
    lab.wait_caught_up(TIER, 4)
    lab.set_owner(TIER, 4)
    lab.wait_for(TIER, 3, State.STOPPED)
    report = lab.report(TIER, 4)
    assert report is not None
    assert report.started_from is not None
    assert report.started_from.repartitioned is not None


def _wait_batches(lab: Lab, count: int) -> None:
    def batches() -> int:
        return int(lab.query("select count(*) from ledger")[0][0])

    first = batches()
    until("the tier counts on", lambda: batches() >= first + count)
