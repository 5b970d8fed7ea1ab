"""Running tiers that join their inputs are moved and killed while records flow: each record is
counted once, and the rows are those of the input.
"""

import pytest

from sluice.records.joins import How
from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import Feed, assert_joined, assert_paid, ends, feeding
from tests.integration.sluice.stateful_pipeline import JOINS
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.stateful_pipeline"
RATE = 100

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


def test_a_chain_with_windows_counts_once_through_a_move_and_kills(lab: Lab, feed: Feed) -> None:
    with feeding(feed, RATE, feed.paid):
        _move_and_kill(lab, "paid")
        _kill_executor_and_repartition(lab, "paid")
    assert_paid(lab, feed)
    lab.stop("paid", 4)


@pytest.mark.parametrize("how", ["left", "right"])
def test_an_outer_join_has_each_row_once_through_a_move_and_a_kill(lab: Lab, feed: Feed, how: How) -> None:
    tier = JOINS[how].name
    with feeding(feed, RATE, feed.sold):
        _move_and_kill(lab, tier)
    assert_joined(lab, feed, how, tier)
    lab.stop(tier, 3)


def _move_and_kill(lab: Lab, tier: str) -> None:
    lab.start_owner(tier, 1, "h1")
    until("the tier counts", lambda: ends(lab, tier))
    lab.cut(tier, 1, 2, "h2")
    lab.hand_over(tier, 1, 2)

    # the driver is killed, and one on another host continues from its checkpoint
    _wait_batches(lab, tier, 3)
    lab.driver(tier, 2).kill()
    lab.stop(tier, 2)
    lab.start_owner(tier, 3, "h3")
    lab.wait_caught_up(tier, 3)
    assert "begins from a checkpoint" in lab.log(tier, 3)


def _kill_executor_and_repartition(lab: Lab, tier: str) -> None:
    lab.kill_executor(tier, 3)
    until("the driver has lost its executor", lambda: "Lost executor" in lab.log(tier, 3))
    _wait_batches(lab, tier, 2)
    lab.cut(tier, 3, 4, "h1", partitions=3)
    lab.wait_caught_up(tier, 4)
    lab.set_owner(tier, 4)
    lab.wait_for(tier, 3, State.STOPPED)
    report = lab.report(tier, 4)
    assert report is not None
    assert report.started_from is not None
    assert report.started_from.repartitioned is not None


def _wait_batches(lab: Lab, tier: str, count: int) -> None:
    def batches() -> int:
        return int(lab.query(f"select count(*) from ledger where tier = '{tier}'")[0][0])  # noqa: S608

    first = batches()
    until("the tier counts on", lambda: batches() >= first + count)
