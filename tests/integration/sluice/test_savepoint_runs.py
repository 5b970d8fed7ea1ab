"""A tier with state goes back to a savepoint: for each kind of state, and killed on the way, it
counts every record once.
"""

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import SparkSession

from sluice.driver.engine.stateful import StatefulEngine, StateGoneError
from sluice_ops.model.savepoint import Savepoint
from tests.integration.sluice.state_feed import (
    Feed,
    assert_final,
    assert_paid,
    busiest,
    ends,
    equation,
    sessions,
    sums,
    table,
    windows,
)
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, SAVEPOINT, Runs
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
SMALL = 25
"""Records of a batch on the way back, so that it takes many batches."""


def interrupt(engine: StatefulEngine, saved: Savepoint) -> None:
    """End the query once it has computed a batch again."""
    query = engine._query
    assert query is not None
    until(
        "a batch is computed again",
        lambda: query.lastProgress and query.lastProgress.batchId > saved.batch + 1,
    )
    query.stop()


def assert_windows_right(lab: Lab, feed: Feed) -> None:
    assert table(lab, "windows", 2) == windows(feed.records["hits"])


def assert_sums_right(lab: Lab, feed: Feed) -> None:
    assert table(lab, "sums", 1) == sums(feed.records["hits"])


def assert_pairs_right(lab: Lab, feed: Feed) -> None:
    pairs = {key: row for key, row in table(lab, "bought", 1).items() if row[0] is not None}
    assert pairs == {(buy["hit"],): (buy["id"],) for buy in feed.records["buys"] if buy["hit"] >= 0}


@pytest.mark.parametrize(
    ("tier", "assert_right"),
    [
        ("by-window", assert_windows_right),
        ("summed", assert_sums_right),
        ("bought", assert_pairs_right),
        ("paid", assert_paid),
        ("busiest", partial(assert_final, tier="busiest", expected=busiest, keys=1)),
        ("sessions", partial(assert_final, tier="sessions", expected=sessions, keys=2)),
        ("timed", partial(assert_final, tier="timed", expected=windows, keys=2)),
    ],
)
def test_a_tier_goes_back_and_counts_each_record_once(
    lab: Lab, driver_session: SparkSession, feed: Feed, tier: str, assert_right: Callable[[Lab, Feed], None]
) -> None:
    runs = Runs(lab, driver_session, tier, 1, 1)
    first = runs.start(1)
    for _ in range(2):  # at least one batch must be committed
        feed.paid_later(150)
        runs.wait_level(first)
    saved = runs.save(first)
    feed.paid_later(600)
    runs.wait_level(first)

    # the way back is interrupted before anything is written: the next run goes back, too
    runs.max_offsets = SMALL
    after, at = runs.last_number(), ends(lab, tier) or {}
    second = runs.go_back(first, 2)
    assert runs.receipts[2].positions == saved.ends
    interrupt(second, saved)
    assert runs.last_number() == after, "the way back was interrupted too late for this test"
    feed.paid_later(100)
    runs.max_offsets = None
    third = runs.restart(second, 3)
    assert runs.receipts[3].positions == saved.ends
    for _ in range(2):
        runs.wait_level(third)
        feed.paid_later(100)
    runs.wait_level(third)
    assert runs.last_number() > after
    assert_right(lab, feed)

    # from then on, the tier continues from its own checkpoints
    fourth = runs.restart(third, 4)
    assert all(runs.receipts[4].positions[place] > end for place, end in at.items())
    feed.paid_later(100)
    runs.wait_level(fourth)
    assert_right(lab, feed)

    # the savepoint outlives the removal of checkpoints, and can be used again
    runs.checkpoints.prune(fourth._state.run or "", others=True)
    fifth = runs.go_back(fourth, 5, partitions=3)
    assert runs.receipts[5].positions == saved.ends
    assert runs.receipts[5].repartitioned is not None
    feed.paid_later(100)
    runs.wait_level(fifth)
    assert_right(lab, feed)
    if tier in {"by-window", "summed"}:  # joins filter a record only when its time is over
        assert equation(lab, tier) == feed.equation("hits")
    runs.end()


def test_without_the_savepoint_the_tier_begins_from_nothing_else(
    lab: Lab, driver_session: SparkSession, feed: Feed
) -> None:
    runs = Runs(lab, driver_session, "sliding", 1, 1)
    first = runs.start(1)
    for _ in range(2):
        feed.hits(100)
        runs.wait_level(first)
    runs.save(first)
    assert runs.checkpoints.forget(SAVEPOINT)
    with pytest.raises(StateGoneError, match=f"{SAVEPOINT}, which cannot be used: it was removed"):
        runs.go_back(first, 2)
    assert runs.last_number() == first._writer.ledger.number
    runs.end()
