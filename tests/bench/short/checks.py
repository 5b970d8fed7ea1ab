"""Compare what a system has written with an independent computation on its input."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import psycopg

from nexmark.events import event
from tests.bench.short.streams import values
from tests.bench.short.tiers import QUERIES
from tests.integration.nexmark.oracle import expected

WINDOW_MS = 10_000
KINDS = ("view", "click", "buy")
FIRST_CHECKED, CHECKED, EVERY_MS = 1_750, 3_000, 20
"""The bounded input of Nexmark: an hour before the load, so that its windows are final."""
BEFORE_SECONDS = 3_600
CHECKED_IDS = 15_000
"""The ids of the bounded input are below, and those of the load above."""
WAIT_SECONDS = 60.0
COLUMNS = {
    "q0": ("auction", "bidder", "price", "at"),
    "q1": ("auction", "bidder", "price", "at"),
    "q2": ("auction", "price"),
    "q5": ("since", "auction", "bids"),
    "q7": ("since", "auction", "bidder", "price", "at"),
    "q8": ("person", "since", "name"),
}
TABLES = {
    "q0": "q0_bids",
    "q1": "q1_bids_in_euros",
    "q2": "q2_bids_on_some_auctions",
    "q5": "q5_hot_auctions",
    "q7": "q7_highest_bids",
    "q8": "q8_new_sellers",
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
    campaigns = campaigns_by_ad()
    wanted: Counter[tuple[str, datetime, str]] = Counter()
    for value in values(kafka, source):
        hit = json.loads(value)
        start = datetime.fromtimestamp(hit["at"] // WINDOW_MS * WINDOW_MS / 1000, UTC).replace(tzinfo=None)
        wanted[campaigns.get(hit["ad"], "unknown"), start, hit["kind"]] += 1
    found: Counter[tuple[str, datetime, str]] = Counter()
    rows = query(postgres, f"SELECT campaign, window_start, views, clicks, buys FROM {table}")  # noqa: S608
    for campaign, start, *numbers in rows:
        found.update(
            {(campaign, start, kind): number for kind, number in zip(KINDS, numbers, strict=True) if number}
        )
    return None if found == wanted else f"{len(found.items() ^ wanted.items())} counts differ"


def campaigns_by_ad() -> dict[str, str]:
    lines = files("hits").joinpath("campaigns.csv").read_text().splitlines()[1:]
    return dict(line.split(",") for line in lines)


def bounded_events() -> list[dict[str, Any]]:
    """Return the bounded input of Nexmark; it ends before `BEFORE_SECONDS` minus its length."""
    begin = (int(time.time()) - BEFORE_SECONDS) * 1000
    return [event(1, FIRST_CHECKED + number, begin + number * EVERY_MS) for number in range(CHECKED)]


def answers(postgres: str, prefix: str, events: Iterable[Mapping[str, Any]]) -> str | None:
    """Return which queries' tables differ from DuckDB's answers on the bounded input."""
    listed = [dict(one) for one in events]
    left = {name: expected(name, listed) for name in QUERIES}
    end = time.monotonic() + WAIT_SECONDS
    while left and time.monotonic() < end:
        left = {name: rows for name, rows in left.items() if rows_of(postgres, prefix, name) != rows}
        time.sleep(0.5 if left else 0)
    differing = [f"{name} ({len(rows)} rows expected)" for name, rows in left.items()]
    return f"other rows than DuckDB: {', '.join(differing)}" if differing else None


def rows_of(postgres: str, prefix: str, name: str) -> Rows:
    """Return the sorted rows of a query's table that are about the bounded input; times in UTC."""
    id_ = "person" if name == "q8" else "auction"
    columns = ", ".join(f'"{column}"' for column in COLUMNS[name])
    return sorted(
        query(postgres, f"SELECT {columns} FROM {prefix}{TABLES[name]} WHERE {id_} < {CHECKED_IDS}")  # noqa: S608
    )


def query(postgres: str, text: str) -> Rows:
    """Return the rows of a query. A time without a zone is one in UTC."""
    with psycopg.connect(postgres) as connection:
        rows = connection.execute(text.encode()).fetchall()
    return [tuple(_in_utc(value) for value in row) for row in rows]


def _in_utc(value: object) -> object:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
