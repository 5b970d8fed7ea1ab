"""Tiers with state on real Kafka and PostgreSQL: handed over and stopped anywhere, their output is
the one computed from the input.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from pyspark.sql import SparkSession

from sluice.audit.__main__ import Auditor
from sluice.driver.engine.batch_writer import QUIET_SECONDS
from sluice.records.joins import How
from tests.integration.sluice.state_feed import Feed, equation, joined_rows, sums, table, windows
from tests.integration.sluice.stateful_pipeline import JOINS
from tests.integration.sluice.stateful_runs import PIPELINE, PIPELINE_MODULE, Runs, overtake
from tests.lab import Lab

__all__ = ["PIPELINE_MODULE"]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def begin(lab: Lab, driver_session: SparkSession) -> Iterator[Callable[[str, int], Runs]]:
    """Return a function that creates a tier's runs with a first owner; stop the runs at the end."""
    all_runs: list[Runs] = []

    def runs(tier: str, owner: int) -> Runs:
        all_runs.append(Runs(lab, driver_session, tier, owner, owner))
        return all_runs[-1]

    yield runs
    for tier_runs in all_runs:
        tier_runs.end()


def test_windows_are_those_of_the_input_whoever_counts_them(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed
) -> None:
    runs = begin("by-window", 1)
    feed.hits(1000)
    first = runs.start(1)
    runs.wait_level(first)
    assert table(lab, "windows", 2) == windows(feed.records["hits"])

    # the next incarnation runs beside the owner, and takes its turn
    second = runs.start(2)
    overtake(first, second, lambda: feed.hits(50))
    runs.set_owner(2)
    assert (second.gap() or 0) < QUIET_SECONDS
    feed.hits(500)
    runs.wait_level(second)
    assert table(lab, "windows", 2) == windows(feed.records["hits"])
    runs.wait_pruned(second)

    # the engine is stopped anywhere, and another continues
    for number in range(3, 6):
        feed.hits(200)
        time.sleep(number / 2)
        assert second._query is not None
        second._query.stop()
        runs.set_owner(number)
        feed.hits(200)
        second = runs.start(number)
        runs.wait_level(second)
    # the same if Spark does not know that its last batch is written
    second.hold()
    folder = lab.home / "checkpoints" / "by-window"
    max((max(folder.iterdir()) / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    feed.hits(200)
    second.run()
    runs.wait_level(second)
    second.hold()
    assert table(lab, "windows", 2) == windows(feed.records["hits"])
    assert equation(lab, "by-window") == feed.equation("hits")


@pytest.mark.long
def test_a_lost_checkpoint_is_rebuilt_from_the_input(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed
) -> None:
    runs = begin("by-window", 9)
    (lab.home / "checkpoints" / "by-window").rename(lab.home / "elsewhere")
    engine = runs.start(9)
    feed.hits(500)
    runs.wait_level(engine)
    engine.hold()
    assert table(lab, "windows", 2) == windows(feed.records["hits"])
    assert equation(lab, "by-window") == feed.equation("hits")


def test_the_audit_balances_a_state_and_misses_a_deleted_row(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed
) -> None:
    runs, tier = begin("by-window", 10), PIPELINE.tier("by-window")
    with closing(Auditor((tier,), lab.endpoints)) as auditor:
        assert auditor.check() == []
        engine = runs.start(10)
        feed.hits(100)
        runs.wait_level(engine)
        assert auditor.check() == []
        feed.hits(100)
        runs.wait_level(engine)
        engine.hold()
        with psycopg.connect(lab.endpoints.postgres) as connection:
            connection.execute(
                "DELETE FROM windows WHERE batch = (SELECT max(batch) FROM windows) AND who = 'user-1'"
            )
        (missing,) = auditor.check()
    assert "rows, and" in missing.sentence


@pytest.mark.long
def test_a_tiers_own_state_is_handed_over(lab: Lab, begin: Callable[[str, int], Runs], feed: Feed) -> None:
    runs = begin("summed", 1)
    first = runs.start(1)
    runs.wait_level(first)
    feed.hits(100)
    assert first._query is not None
    first._query.stop()
    runs.set_owner(2)
    second = runs.start(2)
    feed.hits(100)
    runs.wait_level(second)
    # the first engine's checkpoint is deleted after the second has committed its first batch
    runs.wait_pruned(second)
    second.hold()
    runs.set_owner(3)
    third = runs.start(3)
    feed.hits(100)
    runs.wait_level(third)
    third.hold()
    assert table(lab, "sums", 1) == sums(feed.records["hits"])
    assert equation(lab, "summed") == feed.equation("hits")


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[] if how == "left" else pytest.mark.long) for how in JOINS]
)
def test_a_join_gives_each_result_once_though_it_moves(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed, how: How
) -> None:
    tier = JOINS[how].name
    runs = begin(tier, 1)
    feed.sold(300)
    first = runs.start(1)
    runs.wait_level(first)
    second = runs.start(2)
    feed.sold(100)
    settled = {stream: list(records) for stream, records in feed.records.items()}
    feed.number += 60_000  # ten minutes later, records without a partner are settled
    overtake(first, second, lambda: feed.sold(50))
    runs.set_owner(2)
    for _ in range(2):
        feed.sold(50)
        runs.wait_level(second)
    second.hold()
    rows, left_out = joined_rows(feed.records, settled, how)
    assert set(lab.query(f"select id, buy from {tier}")) == rows  # noqa: S608 - a name of the test
    assert equation(lab, tier) == feed.equation("hits", "buys", filtered=left_out)


@pytest.mark.long
def test_a_row_that_its_table_refuses_is_kept_and_the_tier_continues(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed
) -> None:
    runs, tier = begin("summed", 20), PIPELINE.tier("summed")
    with closing(Auditor((tier,), lab.endpoints)) as auditor:
        engine = runs.start(20)
        feed.put("hits", [{"id": feed.number, "who": "nobody\0", "at": feed.first_time + feed.number * 10}])
        feed.number += 1
        feed.hits(100)
        runs.wait_level(engine)
        assert auditor.check() == []
        engine.hold()
    expected = sums(feed.records["hits"])
    refused = expected.pop(("nobody\0",))
    assert table(lab, "sums", 1) == expected
    (refused_row,) = lab.query(
        "select record ->> 'who', record -> 'hits', record -> 'ids', reason from sums_refused"
    )
    assert refused_row == ("nobody", *refused, "PostgreSQL text fields cannot contain NUL (0x00) bytes")
    assert engine._config.flow.quarantined == 1
    assert equation(lab, "summed") == feed.equation("hits")
