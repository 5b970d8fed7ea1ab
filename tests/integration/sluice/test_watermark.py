"""A tier with state catches up after an hour: partitions are read unevenly, and no record that came
in time is late.
"""

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.integration.sluice.state_feed import PARTITIONS, Feed, ends, equation, table, windows
from tests.integration.sluice.stateful_runs import PIPELINE_MODULE, Runs
from tests.lab import Lab, until

__all__ = ["PIPELINE_MODULE"]

pytestmark = pytest.mark.timeout(600)
HOUR, EARLY = 3_600_000, 300_000
"""Unit: milliseconds."""
BATCH, AHEAD = 250, 40
"""Unit: records. AHEAD is small, so that more records wait than are looked at."""


@pytest.fixture
def begin(
    lab: Lab, driver_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Runs]]:
    """Return a function that creates a tier's runs with small batches; stop the runs at the end."""
    monkeypatch.setattr("sluice.driver.engine.stateful.AHEAD", AHEAD)
    all_runs: list[Runs] = []

    def runs(tier: str) -> Runs:
        all_runs.append(Runs(lab, driver_session, tier, 1, 1, max_offsets=BATCH))
        return all_runs[-1]

    yield runs
    for tier_runs in all_runs:
        tier_runs.end()


@pytest.fixture(scope="module")
def backlog(feed: Feed) -> Feed:
    """Write an hour's hits, and a buy for each third hit.

    Partition 0 has them all in its first five minutes, the others over the hour; none is late.
    """
    numbers = [number for number in range(1_000) if number % 50 != 49]
    span = {number: EARLY if number % len(PARTITIONS) == 0 else HOUR for number in numbers}
    at = {number: feed.first_time - HOUR + span[number] * number // 1_000 for number in numbers}
    feed.put("hits", [{"id": number, "who": f"user-{number % 5}", "at": at[number]} for number in numbers])
    feed.put(
        "buys",
        [{"id": number, "hit": number, "at": at[number] + 1_000} for number in numbers if number % 3 == 0],
    )
    assert sum(feed.late.values()) == 0
    return feed


def test_after_an_hours_stop_uneven_partitions_have_no_late_records(
    lab: Lab, begin: Callable[[str], Runs], backlog: Feed
) -> None:
    runs = begin("by-window")
    first = runs.start(1)
    # the engine is stopped in the middle of the backlog, and another continues with its state and
    # watermark
    until("a part of the backlog is done", lambda: sum((ends(lab, "by-window") or {}).values()) >= 2 * BATCH)
    assert first._query is not None
    first._query.stop()
    runs.set_owner(2)
    second = runs.start(2)
    runs.wait_level(second)
    assert equation(lab, "by-window") == backlog.equation("hits")
    assert table(lab, "windows", 2) == windows(backlog.records["hits"])


@pytest.mark.long
def test_a_join_of_uneven_partitions_loses_no_pair(
    lab: Lab, begin: Callable[[str], Runs], backlog: Feed
) -> None:
    runs = begin("bought")
    runs.wait_level(runs.start(1))
    *_, replays, late, _ = equation(lab, "bought")
    assert (replays, late) == (sum(backlog.duplicates.values()), 0)
    paired = {row for row in lab.query("select id, buy from bought") if row[1] is not None}
    assert paired == {(buy["hit"], buy["id"]) for buy in backlog.records["buys"]}
