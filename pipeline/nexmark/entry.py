"""The tier `entry`: parses each event once, and sends it to the stream of its kind."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT = """
kind string, id bigint, at bigint, name string, email string, city string, state string, item string,
initial_bid bigint, reserve bigint, seller bigint, category int, expires bigint, auction bigint,
bidder bigint, price bigint, channel string, url string
"""
REQUIRED = {
    "person": ("id", "at"),
    "auction": ("id", "seller", "category", "at", "expires"),
    "bid": ("auction", "bidder", "price", "at"),
}
"""Kind of event → the fields that the queries need."""


def routed(raw: "DataFrame") -> "DataFrame":
    """Parse each record, name its stream, and add a reason if it is no event."""
    events = raw.select(F.from_json("value", EVENT).alias("event"), "lineage").select("event.*", "lineage")
    incomplete = [
        F.when((F.col("kind") == kind) & F.col(field).isNull(), F.lit(f"{kind} without {field}"))
        for kind, fields in REQUIRED.items()
        for field in fields
    ]
    is_known = F.coalesce(F.col("kind").isin(*REQUIRED), F.lit(False))
    reason = F.coalesce(F.when(~is_known, F.lit("neither person, auction nor bid")), *incomplete)
    return events.select("*", F.concat("kind", F.lit("s")).alias("to"), reason.alias("reason")).drop("kind")
