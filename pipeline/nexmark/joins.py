"""Queries that join persons with the auctions that they open: q3 in some states, q8 at once."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

from sluice import Latest, joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Q3 = Latest(
    "q3_local_items", {"auction": "bigint", "name": "text", "city": "text", "state": "text"}, key=("auction",)
)
Q8 = Latest(
    "q8_new_sellers",
    {"person": "bigint", "since": "timestamptz", "name": "text"},
    key=("person", "since"),
)
LOCAL_STATES = ("OR", "ID", "CA")
CATEGORY = 10
REMEMBERED = 12 * 3600
"""How long after a person registers q3 still finds the person's auctions. Unit: seconds."""
EARLY = 60
"""How long before a person registers the person's first auction may open. Unit: seconds."""


def q3(persons: "DataFrame", auctions: "DataFrame") -> "DataFrame":
    """Find the sellers in some states whose auctions are of one category."""
    local = persons.where(F.col("state").isin(*LOCAL_STATES))
    items = auctions.where(F.col("category") == CATEGORY)
    sellers = joined(local, items, local["id"] == items["seller"], within=(-EARLY, REMEMBERED), how="inner")
    return sellers.select(items["id"].alias("auction"), "name", "city", "state")


def q8(persons: "DataFrame", auctions: "DataFrame") -> "DataFrame":
    """Find the persons who opened an auction in the ten seconds in which they registered."""
    registered, opened = F.window(persons["time"], "10 seconds"), F.window(auctions["time"], "10 seconds")
    persons = persons.withColumn("since", registered["start"])
    auctions = auctions.withColumn("opened", opened["start"])
    at_once = (persons["id"] == auctions["seller"]) & (persons["since"] == auctions["opened"])
    sellers = joined(persons, auctions, at_once, within=(-10, 10), how="inner")
    return sellers.select(persons["id"].alias("person"), "since", "name")
