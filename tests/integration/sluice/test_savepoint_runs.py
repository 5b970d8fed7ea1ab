"""A tier with state goes back to a savepoint: for each kind of state, and killed on the way, it
counts every record once.
"""

import time
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sluice.driver.engine.stateful import StatefulEngine, StateGoneError
from sluice.driver.state.checkpoint_selection import Candidate
from sluice.driver.state.checkpoint_store import Folder
from sluice.driver.state.checkpoints import LEDGER_BATCHES, Checkpoints, Code
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import STATE_PARTITIONS
from sluice_ops.model.savepoint import Savepoint, StartFrom
from tests.integration.sluice.state_feed import Feed, assert_paid, ends, equation, sums, table, windows
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
NAME = "before-fix"
SMALL = 25
"""Records of a batch on the way back, so that it takes many batches."""


def checkpoints_of(runs: Runs) -> Checkpoints:
    return Checkpoints(Folder(runs.lab.home / "checkpoints" / runs.tier))


def save(runs: Runs, engine: StatefulEngine) -> Savepoint:
    def describe(candidate: Candidate, code: Code) -> Savepoint:
        return Savepoint(
            name=NAME,
            tier=TierName(runs.tier),
            taken_at=time.time(),
            by="cli:anna",
            release=code.release,
            shape=None,
            number=candidate.number,
            batch=candidate.committed.batch,
            ends=dict(candidate.committed.ends),
            streams={},
            partitions=candidate.committed.partitions,
        )

    endings = engine._writer.ledger.last_batches(LEDGER_BATCHES)
    saved = checkpoints_of(runs).save(NAME, endings, describe)
    assert saved is not None
    return saved


def restart(
    runs: Runs, engine: StatefulEngine, number: int, partitions: int = STATE_PARTITIONS
) -> StatefulEngine:
    engine.hold()
    runs.set_owner(number)
    return runs.start(number, partitions)


def go_back(
    runs: Runs, engine: StatefulEngine, number: int, partitions: int = STATE_PARTITIONS
) -> StatefulEngine:
    """Stop the tier, and start it from the savepoint."""
    after, at = last_number(runs.lab, runs.tier), ends(runs.lab, runs.tier)
    assert at is not None
    runs.savepoint = StartFrom(name=NAME, after=after, ends=at)
    return restart(runs, engine, number, partitions)


def interrupt(engine: StatefulEngine, saved: Savepoint) -> None:
    """End the query once it has computed a batch again."""
    query = engine._query
    assert query is not None
    until(
        "a batch is computed again",
        lambda: query.lastProgress and query.lastProgress.batchId > saved.batch + 1,
    )
    query.stop()


def last_number(lab: Lab, tier: str) -> int:
    return int(lab.query(f"select max(batch) from ledger where tier = '{tier}'")[0][0])  # noqa: S608


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
    saved = save(runs, first)
    feed.paid_later(600)
    runs.wait_level(first)

    # the way back is interrupted before anything is written: the next run goes back, too
    runs.max_offsets = SMALL
    after, at = last_number(lab, tier), ends(lab, tier) or {}
    second = go_back(runs, first, 2)
    assert runs.receipts[2].positions == saved.ends
    interrupt(second, saved)
    assert last_number(lab, tier) == after, "the way back was interrupted too late for this test"
    feed.paid_later(100)
    runs.max_offsets = None
    third = restart(runs, second, 3)
    assert runs.receipts[3].positions == saved.ends
    for _ in range(2):
        runs.wait_level(third)
        feed.paid_later(100)
    runs.wait_level(third)
    assert last_number(lab, tier) > after
    assert_right(lab, feed)

    # from then on, the tier continues from its own checkpoints
    fourth = restart(runs, third, 4)
    assert all(runs.receipts[4].positions[place] > end for place, end in at.items())
    feed.paid_later(100)
    runs.wait_level(fourth)
    assert_right(lab, feed)

    # the savepoint outlives the removal of checkpoints, and can be used again
    checkpoints_of(runs).prune(fourth._state.run or "", others=True)
    fifth = go_back(runs, fourth, 5, partitions=3)
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
    save(runs, first)
    assert checkpoints_of(runs).forget(NAME)
    with pytest.raises(StateGoneError, match=f"{NAME}, which cannot be used: it was removed"):
        go_back(runs, first, 2)
    assert last_number(lab, "sliding") == first._writer.ledger.number
    runs.end()
