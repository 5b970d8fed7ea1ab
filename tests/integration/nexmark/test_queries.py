"""Each query of Nexmark gives the rows that DuckDB computes from the same events."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from nexmark import LATENESS, PIPELINE
from nexmark.events import LONGEST_MS, ROUND, event
from sluice.sinks.table import Latest
from sluice.testing import Record, run, run_batches
from tests.integration.nexmark.oracle import QUERIES, expected
from tests.testing_session import end_session

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

BEGIN, COUNT, EVERY_MS = 1_764_400_000_000, 600, 100
MIDDLE, PAUSE_MS = COUNT // 2, 400_000
"""Auctions before the pause close in an earlier batch than the others."""


def events(first: int) -> list[dict[str, Any]]:
    return [
        event(1, first + number, BEGIN + number * EVERY_MS + (number >= MIDDLE) * PAUSE_MS)
        for number in range(COUNT)
    ]


EVENTS = events(0)
END = BEGIN + COUNT * EVERY_MS + PAUSE_MS + LONGEST_MS
LATER = END + (LATENESS + 300) * 1000
"""When every window and auction of `EVENTS` is final."""


@pytest.fixture(scope="module", autouse=True)
def ended_session():
    """End the session and its JVM, so that other tests of this process may start their own."""
    yield
    end_session()


def by_stream(events: list[dict[str, Any]], tier: str) -> dict[str, list[Record]]:
    """Return the records of a tier's inputs; each arrives when it happens."""
    return {
        stream.name: [
            Record(
                {name: value for name, value in one.items() if name != "kind"},
                datetime.fromtimestamp(one["at"] / 1000, UTC),
            )
            for one in events
            if f"{one['kind']}s" == stream.name
        ]
        for stream in PIPELINE.tier(tier).inputs
    }


def later(rounds: int) -> list[dict[str, Any]]:
    """Return a person, an auction and a bid, by which time goes on."""
    return [event(1, COUNT + rounds * ROUND + place, LATER + rounds * 1000) for place in (0, 1, 4)]


def test_the_entry_routes_each_event_to_the_stream_of_its_kind():
    bad = ["{", json.dumps({"kind": "refund", "id": 1}), json.dumps({"kind": "bid", "auction": 1, "at": 1})]
    result = run(PIPELINE.tier("entry"), [*map(json.dumps, EVENTS[:50]), *bad])
    assert [row["to"] for row in result.rows] == [f"{one['kind']}s" for one in EVENTS[:50]]
    assert {name: result.rows[4][name] for name in ("auction", "bidder", "price")} == {
        name: EVENTS[4][name] for name in ("auction", "bidder", "price")
    }
    reasons = [row["reason"] for row in result.quarantined]
    assert reasons == ["neither person, auction nor bid"] * 2 + ["bid without bidder"]


@pytest.mark.parametrize(("query", "first"), [("q0", 0), ("q1", 0), ("q2", 35 * ROUND)])
def test_a_query_of_each_bid_is_that_of_duckdb(query: str, first: int):
    """From event `first` on, some bids are on an auction that q2 selects."""
    tier = PIPELINE.tier(query)
    assert tier.sink is not None
    result = run(tier, by_stream(events(first), query))
    rows = sorted(tuple(row[name] for name in tier.sink.columns) for row in result.rows)
    assert rows == expected(query, events(first))
    assert rows


@pytest.mark.parametrize("query", [query for query in QUERIES if query not in {"q0", "q1", "q2"}])
def test_a_query_with_state_is_that_of_duckdb(query: str):
    tier = PIPELINE.tier(query)
    assert isinstance(tier.sink, Latest)
    batches = [EVENTS[:MIDDLE], EVENTS[MIDDLE:], later(0), later(1)]
    written = run_batches(tier, *(by_stream(batch, query) for batch in batches))
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in (row for rows in written for row in rows):
        values = tuple(row[name] for name in tier.sink.columns)
        table[tuple(row[name] for name in tier.sink.key)] = values
    wanted = expected(query, [*EVENTS, *later(0), *later(1)], END)
    assert sorted(table.values()) == wanted
    assert wanted
