"""A state is spread over more partitions and over fewer: with every key, whatever operator holds
it, and nothing is counted twice.
"""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sluice.driver.state.checkpoints import Checkpoints
from tests.integration.sluice.given import Feed, equation, sums, table, windows
from tests.integration.sluice.runs import PIPELINE_MODULE, Runs, overtake
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]
pytestmark = pytest.mark.timeout(600)


def counted(lab: Lab, feed: Feed) -> None:
    assert table(lab, "windows", 2) == windows(feed.records["hits"])


def summed(lab: Lab, feed: Feed) -> None:
    assert table(lab, "sums", 1) == sums(feed.records["hits"])


def joined(lab: Lab, feed: Feed) -> None:
    found = {key: row for key, row in table(lab, "bought", 1).items() if row[0] is not None}
    assert found == {(buy["hit"],): (buy["id"],) for buy in feed.records["buys"] if buy["hit"] >= 0}, (
        "a buy of no hit is in no pair"
    )


@pytest.mark.parametrize(
    ("tier", "right"),
    [
        ("by-window", counted),
        pytest.param("summed", summed, marks=pytest.mark.long),
        pytest.param("bought", joined, marks=pytest.mark.long),
    ],
)
def test_more_partitions_and_fewer_hold_the_same_keys(
    lab: Lab, driver_session: SparkSession, feed: Feed, tier: str, right: Callable[[Lab, Feed], None]
) -> None:
    runs = Runs(lab, driver_session, tier, 1, 1)
    engine, before = runs.start(1), 2
    for _ in range(2):  # so that one batch at least is committed
        feed.sold(150)
        runs.wait_level(engine)
    for number, partitions in enumerate((5, 1, 2), start=2):
        following = runs.start(number, partitions)
        made = runs.receipts[number].repartitioned
        assert made is not None
        assert (made.before, made.after) == (before, partitions)
        assert made.keys_before == made.keys_after > 0
        overtake(engine, following, lambda: feed.sold(30))
        runs.set_owner(number)
        feed.sold(100)
        runs.wait_level(following)
        right(lab, feed)
        engine, before = following, partitions
    # where nothing is to be changed, nothing is; and what earlier runs have left is not needed
    folder = lab.home / "checkpoints" / tier
    until("what is not needed is gone", lambda: engine.tick() or len(list(folder.iterdir())) == 1, 20)
    engine.hold()
    runs.set_owner(5)
    engine = runs.start(5, 2)
    assert runs.receipts[5].repartitioned is None
    feed.sold(50)
    runs.wait_level(engine)
    right(lab, feed)
    runs.end()


@pytest.mark.long
def test_one_that_is_ended_in_the_middle_has_changed_nothing(
    lab: Lab, driver_session: SparkSession, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(lab, driver_session, "by-window", 10, 10)
    engine = runs.start(10)
    for _ in range(2):
        feed.hits(100)
        runs.wait_level(engine)

    def ends_here(*_: object) -> None:
        message = "killed"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "go_on", ends_here)
        with pytest.raises(RuntimeError, match="killed"):
            runs.start(11, 4)
    feed.hits(100)
    runs.wait_level(engine)
    counted(lab, feed)
    # whoever begins next does so from what there was, or is as far
    following = runs.start(12, 3)
    made = runs.receipts[12].repartitioned
    assert made is not None
    assert made.after == 3
    overtake(engine, following, lambda: feed.hits(30))
    runs.set_owner(12)
    feed.hits(100)
    runs.wait_level(following)
    counted(lab, feed)
    assert equation(lab, "by-window") == feed.equation("hits")
    runs.end()
