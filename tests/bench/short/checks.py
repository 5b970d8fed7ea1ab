"""Compare what a system has written with an independent computation on its input."""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

from hits.enrich import UNKNOWN, campaigns
from nexmark.events import AUCTIONS, PERSONS, ROUND, event
from tests.bench.short.streams import values
from tests.bench.short.tiers import QUERIES
from tests.integration.nexmark.oracle import expected

WINDOW_MS = 10_000
KINDS = ("view", "click", "buy")
FIRST_CHECKED, CHECKED, EVERY_MS = 4_500, 3_000, 20
"""The bounded input of Nexmark: its first event, its number of events, and the time between two."""
BEFORE_SECONDS = 3_600
"""How long before the load the bounded input begins."""
FIRST_LATER, LATER_MS = 750_000, 420_000
"""The first later event, and how long after the bounded input's begin all later events happen.

All auctions and windows of the bounded input are final by then.
"""
CHECKED_IDS = 15_000
"""The ids of the bounded input are below, and those of later events and of the load above."""
WAIT_SECONDS, LOOK_SECONDS = 180.0, 1.0
Event = dict[str, Any]


class Table(NamedTuple):
    """The table of a query."""

    name: str
    columns: tuple[str, ...]
    """The columns in the order of DuckDB's answer."""
    id_column: str | None
    """The column that tells the bounded input's rows; None: the table has no others yet."""


TABLES = {
    "q0": Table("q0_bids", ("auction", "bidder", "price", "at"), "auction"),
    "q1": Table("q1_bids_in_euros", ("auction", "bidder", "price", "at"), "auction"),
    "q2": Table("q2_bids_on_some_auctions", ("auction", "price"), "auction"),
    "q3": Table("q3_local_items", ("auction", "name", "city", "state"), "auction"),
    "q4": Table("q4_prices_by_category", ("category", "auctions", "average"), None),
    "q5": Table("q5_hot_auctions", ("since", "auction", "bids"), "auction"),
    "q6": Table("q6_prices_by_seller", ("seller", "average"), "seller"),
    "q7": Table("q7_highest_bids", ("since", "auction", "bidder", "price", "at"), "auction"),
    "q8": Table("q8_new_sellers", ("person", "since", "name"), "person"),
}
Rows = list[tuple[Any, ...]]


def passed(kafka: str, source: str, last: str) -> str | None:
    """Return what is wrong if a record did not come out as it went in."""
    missing = set(values(kafka, source)) - set(values(kafka, last))
    return f"{len(missing)} records did not come out" if missing else None


def counted_up(kafka: str, source: str, last: str) -> str | None:
    """Return what is wrong if not each record came out with three `hops` more."""
    wanted = {_as_row({**json.loads(value), "hops": 3}) for value in values(kafka, source)}
    differing = wanted ^ {_as_row(json.loads(value)) for value in values(kafka, last)}
    return f"{len(differing)} records differ" if differing else None


def _as_row(record: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(record.items()))


def counts(kafka: str, source: str, postgres: str, table: str) -> str | None:
    """Return what is wrong if the table has not the counts of all hits by campaign and window."""
    booked = campaigns_by_ad()
    wanted: Counter[tuple[str, datetime, str]] = Counter()
    for value in values(kafka, source):
        hit = json.loads(value)
        start = datetime.fromtimestamp(hit["at"] // WINDOW_MS * WINDOW_MS / 1000, UTC).replace(tzinfo=None)
        wanted[booked.get(hit["ad"], UNKNOWN), start, hit["kind"]] += 1
    found: Counter[tuple[str, datetime, str]] = Counter()
    rows = query(postgres, f"SELECT campaign, window_start, views, clicks, buys FROM {table}")  # noqa: S608
    for campaign, start, *numbers in rows:
        found.update(
            {(campaign, start, kind): number for kind, number in zip(KINDS, numbers, strict=True) if number}
        )
    return None if found == wanted else f"{len(found.items() ^ wanted.items())} counts differ"


def campaigns_by_ad() -> dict[str, str]:
    return dict(zip(*campaigns().to_pydict().values(), strict=True))


def bounded_events() -> list[Event]:
    """Return the bounded input of Nexmark."""
    begin = (int(time.time()) - BEFORE_SECONDS) * 1000
    return [event(1, FIRST_CHECKED + number, begin + number * EVERY_MS) for number in range(CHECKED)]


def later_events(turn: int, begin: int) -> list[Event]:
    """Return a person, an auction and a bid, other ones each turn.

    Unit of `begin`, the begin of the bounded input: epoch ms.
    """
    first = FIRST_LATER + turn * ROUND
    return [event(1, first + place, begin + LATER_MS) for place in (0, PERSONS, PERSONS + AUCTIONS)]


def answers(postgres: str, prefix: str, events: Sequence[Event], go_on: Callable[[], None]) -> str | None:
    """Return which queries' tables differ from DuckDB's answers on the bounded input.

    `go_on` sends later events: some answers are final only after them.
    """
    left = {name: expected(name, events) for name in QUERIES}
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        left = {name: rows for name, rows in left.items() if rows_of(postgres, prefix, name) != rows}
        if not left:
            return None
        go_on()
        time.sleep(LOOK_SECONDS)
    differing = [f"{name} ({len(rows)} rows expected)" for name, rows in left.items()]
    return f"other rows than DuckDB: {', '.join(differing)}"


def rows_of(postgres: str, prefix: str, name: str) -> Rows:
    """Return the sorted rows of a query's table that are about the bounded input; times in UTC."""
    table = TABLES[name]
    columns = ", ".join(f'"{column}"' for column in table.columns)
    bounded = f" WHERE {table.id_column} < {CHECKED_IDS}" if table.id_column else ""
    return sorted(query(postgres, f"SELECT {columns} FROM {prefix}{table.name}{bounded}"))  # noqa: S608


def query(postgres: str, text: str) -> Rows:
    """Return the rows of a query. A time without a zone is one in UTC."""
    with psycopg.connect(postgres) as connection:
        rows = connection.execute(text.encode()).fetchall()
    return [tuple(_in_utc(value) for value in row) for row in rows]


def _in_utc(value: object) -> object:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
