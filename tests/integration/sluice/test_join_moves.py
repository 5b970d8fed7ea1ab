"""Running tiers that join their inputs, or read another tier with state, are moved and killed while
records flow: each record is counted once, and the rows are those of the input.
"""

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest

from sluice.kafka.reader import Streams
from sluice.records.joins import How
from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import (
    LATER,
    Feed,
    assert_joined,
    assert_paid,
    busiest,
    buyers,
    by_minutes,
    ends,
    equation,
    feeding,
    joined_rows,
    records,
    table,
)
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
    if how == "left":
        _assert_in_stream_once(lab, "bought-hits", "bought", ("id", "buy"))
    lab.stop(tier, 3)


def test_rows_without_duplicates_of_a_join_by_arrival_come_once(lab: Lab, feed: Feed) -> None:
    """No record is late for a tier that goes by arrival, and no column names a time."""
    with feeding(feed, RATE, feed.sold):
        _move_and_kill(lab, "buyers")
    settled = feed.arrived()
    feed.number += LATER

    def all_are_settled() -> bool:
        feed.sold(40)
        with closing(Streams(lab.endpoints.kafka)) as streams:
            input_ends = streams.bounds(["hits", "buys"]).ends
        until("every record is joined", lambda: ends(lab, "buyers") == input_ends)
        _, left_out = joined_rows(feed.arrived(), settled, "inner")
        expected = feed.equation("hits", "buys", filtered=left_out, by_arrival=True)
        return equation(lab, "buyers") == expected

    until("the records without a partner are settled", all_are_settled, 300)
    assert set(lab.query("select who, since from buyers")) == buyers(feed.arrived())
    _assert_in_stream_once(lab, "buyers-by-time", "buyers", ("who", "since"))
    lab.stop("buyers", 3)


def test_a_tier_with_state_feeds_another_through_moves_and_kills(lab: Lab, feed: Feed) -> None:
    """The first tier writes its final rows into a stream, and the second one adds them up."""
    tiers = {"busiest": "h1", "minutes": "h2"}
    with feeding(feed, RATE, feed.spread):
        for tier, host in tiers.items():
            lab.start_owner(tier, 1, host)
        until("the second tier counts", lambda: ends(lab, "minutes"))
        for tier in tiers:
            lab.prepare(tier, 1, 2, "h3")
            lab.hand_over(tier, 1, 2)
        for tier in tiers:
            _wait_batches(lab, tier, 2)
        for tier in tiers:
            lab.driver(tier, 2).kill()
        for tier, host in tiers.items():
            lab.stop(tier, 2)
            lab.start_owner(tier, 3, host)
        for tier in tiers:
            lab.wait_caught_up(tier, 3)
            assert "begins from a checkpoint" in lab.log(tier, 3)
    settled = list(feed.records["hits"])
    feed.number += LATER

    def is_complete() -> bool:
        feed.hits(40)
        rows = table(lab, "busiest", 1)
        are_final = all(rows.get(key) == row for key, row in busiest(settled).items())
        return are_final and by_minutes(rows) == table(lab, "minutes", 1)

    until("both tables have the results", is_complete, 240)
    sent = [json.loads(message.value())["since"] for message in records(lab, "busy")]
    assert len(sent) == len(set(sent)), "each final row is in the stream once"
    for tier in tiers:
        lab.stop(tier, 3)


def _assert_in_stream_once(lab: Lab, stream: str, table_name: str, columns: tuple[str, ...]) -> None:
    """Assert that a stream has each row of a table once."""

    def is_complete() -> bool:
        count = lab.query(f"select count(*) from {table_name}")[0][0]  # noqa: S608
        return len(records(lab, stream)) >= int(count)

    until("the stream has the table's rows", is_complete, 60)
    rows = lab.query(f"select {', '.join(columns)} from {table_name}")  # noqa: S608
    sent = [json.loads(message.value()) for message in records(lab, stream)]
    found = sorted(tuple(_comparable(row.get(name)) for name in columns) for row in sent)
    assert found == sorted(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: object) -> str:
    """Return a value of a stream or of a table as text."""
    if isinstance(value, str) and value[:4].isdigit():
        value = datetime.fromisoformat(value)
    return str(value.astimezone(UTC)) if isinstance(value, datetime) else str(value)


def _move_and_kill(lab: Lab, tier: str) -> None:
    lab.start_owner(tier, 1, "h1")
    until("the tier counts", lambda: ends(lab, tier))
    lab.prepare(tier, 1, 2, "h2")
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
