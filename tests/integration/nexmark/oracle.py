"""Nexmark's queries in DuckDB, over the same events: the expected rows of each query's table.

The queries are written from Nexmark's definition, and share no code with the pipeline.
"""

from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa

EVENTS = {
    "persons": ("id", "name", "city", "state", "at"),
    "auctions": ("id", "category", "seller", "at", "expires"),
    "bids": ("auction", "bidder", "price", "at"),
}
TABLES = """
    create table persons as select * exclude "at", make_timestamp("at" * 1000) as happened from read_persons;
    create table auctions as select * exclude ("at", expires),
        make_timestamp("at" * 1000) as happened, make_timestamp(expires * 1000) as expires from read_auctions;
    create table bids as select * exclude "at", make_timestamp("at" * 1000) as happened from read_bids;
    create macro since(happened) as time_bucket(interval '10 seconds', happened);
    create view won as
        select auctions.id, category, seller, expires, max(price) as price from auctions
        join bids on auctions.id = auction and bids.happened between auctions.happened and expires
        where expires <= getvariable('until') group by all;
"""
QUERIES = {
    "q0": "select auction, bidder, price, happened from bids",
    "q1": "select auction, bidder, price * 0.908::decimal(4, 3), happened from bids",
    "q2": "select auction, price from bids where auction % 123 = 0",
    "q3": """
        select auctions.id, name, city, state from auctions join persons on seller = persons.id
        where category = 10 and state in ('OR', 'ID', 'CA')
    """,
    "q4": "select category, count(*), avg(price) from won group by category",
    "q5": """
        with windows as (
            select make_timestamp((epoch_ms(happened) // 2000 * 2 - earlier) * 1000000) as begins,
                auction, count(*) as bids
            from bids, range(0, 10, 2) as t(earlier) group by all
        )
        select begins, auction, bids from windows
        where begins + interval '10 seconds' <= getvariable('until')
        qualify bids = max(bids) over (partition by begins)
    """,
    "q6": """
        with newest as (
            select seller, price from won
            qualify row_number() over (partition by seller order by expires desc, id desc) <= 10
        )
        select seller, avg(price) from newest group by seller
    """,
    "q7": """
        select since(happened), auction, bidder, price, happened from bids
        qualify row_number() over (
            partition by since(happened) order by price desc, happened, auction desc, bidder desc
        ) = 1
    """,
    "q8": """
        select distinct persons.id, since(persons.happened), name from persons
        join auctions on seller = persons.id and since(auctions.happened) = since(persons.happened)
    """,
    "q11": """
        with starts as (
            select bidder, happened,
                coalesce(happened - lag(happened) over earlier > interval '10 seconds', true) as begins
            from bids window earlier as (partition by bidder order by happened)
        ), numbered as (
            select bidder, happened,
                count(*) filter (begins) over (partition by bidder order by happened) as session
            from starts
        )
        select bidder, min(happened), max(happened) + interval '10 seconds' as ends, count(*) from numbered
        group by bidder, session having ends <= getvariable('until')
    """,
    "q12": "select bidder, since(happened), count(*) from bids group by all",
}
"""Query → its rows, in the order of its table's columns. `until` leaves out what is not final."""


def expected(query: str, events: Iterable[dict[str, Any]], until: int = 1 << 42) -> list[tuple[Any, ...]]:
    """Return the sorted rows of a query. For q12, `at` is the time of arrival.

    Unit of `until`: epoch ms.
    """
    listed = list(events)
    with duckdb.connect() as connection:
        connection.execute("set variable until = make_timestamp(?::bigint * 1000)", [until])
        for stream, columns in EVENTS.items():
            rows = [one for one in listed if f"{one['kind']}s" == stream]
            table = pa.table({name: [row[name] for row in rows] for name in columns})
            connection.register(f"read_{stream}", table)
        connection.execute(TABLES)
        return sorted(connection.execute(QUERIES[query]).fetchall())
