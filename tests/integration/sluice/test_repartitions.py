"""A state is spread over more and over fewer partitions, for each operator: every key is kept, and
no record is counted twice.
"""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sluice.driver.state.checkpoints import Checkpoints
from tests.integration.sluice.state_feed import Feed, equation, sums, table, windows
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs, overtake
from tests.lab import Lab

__all__ = ["PIPELINE_MODULE"]
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def assert_windows_right(lab: Lab, feed: Feed) -> None:
    assert table(lab, "windows", 2) == windows(feed.records["hits"])


def assert_sums_right(lab: Lab, feed: Feed) -> None:
    assert table(lab, "sums", 1) == sums(feed.records["hits"])


def assert_pairs_right(lab: Lab, feed: Feed) -> None:
    pairs = {key: row for key, row in table(lab, "bought", 1).items() if row[0] is not None}
    assert pairs == {(buy["hit"],): (buy["id"],) for buy in feed.records["buys"] if buy["hit"] >= 0}, (
        "a buy without a hit is in no pair"
    )


@pytest.mark.parametrize(
    ("tier", "assert_right"),
    [
        ("by-window", assert_windows_right),
        ("summed", assert_sums_right),
        ("bought", assert_pairs_right),
    ],
)
def test_more_partitions_and_fewer_hold_the_same_keys(
    lab: Lab, driver_session: SparkSession, feed: Feed, tier: str, assert_right: Callable[[Lab, Feed], None]
) -> None:
    runs = Runs(lab, driver_session, tier, 1, 1)
    engine, before = runs.start(1), 2
    for _ in range(2):  # at least one batch must be committed
        feed.sold(150)
        runs.wait_level(engine)
    for number, partitions in enumerate((5, 1, 2), start=2):
        following = runs.start(number, partitions)
        repartitioned = runs.receipts[number].repartitioned
        assert repartitioned is not None
        assert (repartitioned.before, repartitioned.after) == (before, partitions)
        assert repartitioned.keys_before == repartitioned.keys_after > 0
        overtake(engine, following, lambda: feed.sold(30))
        runs.set_owner(number)
        feed.sold(100)
        runs.wait_level(following)
        assert_right(lab, feed)
        engine, before = following, partitions
    # Without a change of the number, nothing is repartitioned, and checkpoints of earlier runs are
    # not needed.
    runs.wait_pruned(engine)
    engine.hold()
    runs.set_owner(5)
    engine = runs.start(5, 2)
    assert runs.receipts[5].repartitioned is None
    feed.sold(50)
    runs.wait_level(engine)
    assert_right(lab, feed)
    runs.end()


def test_an_interrupted_repartition_changes_nothing(
    lab: Lab, driver_session: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(lab, driver_session, "by-window", 10, 10)
    engine = runs.start(10)
    for _ in range(2):
        feed.hits(100)
        runs.wait_level(engine)

    def raise_killed(*_: object) -> None:
        message = "killed"
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "go_on", raise_killed)
        with pytest.raises(RuntimeError, match="killed"):
            runs.start(11, 4)
    feed.hits(100)
    runs.wait_level(engine)
    assert_windows_right(lab, feed)
    # the next incarnation starts from the earlier checkpoint
    following = runs.start(12, 3)
    repartitioned = runs.receipts[12].repartitioned
    assert repartitioned is not None
    assert repartitioned.after == 3
    overtake(engine, following, lambda: feed.hits(30))
    runs.set_owner(12)
    feed.hits(100)
    runs.wait_level(following)
    assert_windows_right(lab, feed)
    assert equation(lab, "by-window") == feed.equation("hits")
    runs.end()
