"""Queries that compare the bids of a window: q5 hot auctions, q7 the highest bid, q11 sessions of a
bidder, q12 bids by the time of arrival.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code

from sluice import Latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Q5 = Latest(
    "q5_hot_auctions",
    {"since": "timestamptz", "auction": "bigint", "bids": "bigint"},
    key=("since", "auction"),
)
Q7 = Latest(
    "q7_highest_bids",
    {"since": "timestamptz", "auction": "bigint", "bidder": "bigint", "price": "bigint", "at": "timestamptz"},
    key=("since",),
)
Q11 = Latest(
    "q11_sessions",
    {"bidder": "bigint", "since": "timestamptz", "until": "timestamptz", "bids": "bigint"},
    key=("bidder", "since"),
)
Q12 = Latest(
    "q12_bids_by_arrival",
    {"bidder": "bigint", "since": "timestamptz", "bids": "bigint"},
    key=("bidder", "since"),
)


def q5(bids: "DataFrame") -> "DataFrame":
    """Find the auctions with the most bids in each ten seconds, every two seconds."""
    counted = bids.groupBy("auction", F.window("time", "10 seconds", "2 seconds").alias("span")).agg(
        F.count("*").alias("bids")
    )
    auctions = F.collect_list(F.struct("bids", "auction"))
    by_window = counted.groupBy("span").agg(F.max("bids").alias("most"), auctions.alias("auctions"))
    hot = F.filter("auctions", lambda auction: auction["bids"] == F.col("most"))
    return by_window.select("span", F.explode(hot).alias("hot")).select(
        F.col("span.start").alias("since"), "hot.auction", "hot.bids"
    )


def q7(bids: "DataFrame") -> "DataFrame":
    """Find the highest bid of each ten seconds; of equal ones, the first."""
    bid = F.struct("price", (-F.col("at")).alias("earlier"), "auction", "bidder")
    highest = bids.groupBy(F.window("time", "10 seconds")).agg(F.max(bid).alias("bid"))
    return highest.select(
        F.col("window.start").alias("since"),
        "bid.auction",
        "bid.bidder",
        "bid.price",
        F.timestamp_millis(-F.col("bid.earlier")).alias("at"),
    )


def q11(bids: "DataFrame") -> "DataFrame":
    """Count the bids of each bidder's session, which ends after ten seconds without a bid."""
    counted = bids.groupBy("bidder", F.session_window("time", "10 seconds").alias("span")).agg(
        F.count("*").alias("bids")
    )
    return counted.select(
        "bidder", F.col("span.start").alias("since"), F.col("span.end").alias("until"), "bids"
    )


def q12(bids: "DataFrame") -> "DataFrame":
    """Count the bids of each bidder that arrived in each ten seconds."""
    counted = bids.groupBy("bidder", F.window("time", "10 seconds").alias("span")).agg(
        F.count("*").alias("bids")
    )
    return counted.select("bidder", F.col("span.start").alias("since"), "bids")
