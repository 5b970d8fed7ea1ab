"""Queries that look at one bid at a time: q0 as it is, q1 in euros, q2 on some auctions."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

from sluice import Once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BID = {"auction": "bigint", "bidder": "bigint", "price": "bigint", "at": "timestamptz"}
Q0 = Once("q0_bids", BID)
Q1 = Once("q1_bids_in_euros", {**BID, "price": "numeric"})
Q2 = Once("q2_bids_on_some_auctions", {"auction": "bigint", "price": "bigint"})
EUROS = "0.908"
"""One dollar in euros."""


def q0(bids: "DataFrame") -> "DataFrame":
    """Pass each bid on."""
    return bids.select("auction", "bidder", "price", F.timestamp_millis("at").alias("at"), "lineage")


def q1(bids: "DataFrame") -> "DataFrame":
    """Convert each price to euros."""
    euros = F.col("price") * F.lit(EUROS).cast("decimal(4,3)")
    return q0(bids).withColumn("price", euros)


def q2(bids: "DataFrame") -> "DataFrame":
    """Keep the bids on each 123rd auction."""
    return bids.where(F.col("auction") % 123 == 0).select("auction", "price", "lineage")
