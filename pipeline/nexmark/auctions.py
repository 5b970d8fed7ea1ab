"""Queries about closed auctions: q4 the average price of a category, q6 of a seller's last ten.

An auction's winning bid is known when the auction has ended, so it closes by a timer.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 — the usual alias in Spark code
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from sluice import Latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Q4 = Latest(
    "q4_prices_by_category",
    {"category": "integer", "auctions": "bigint", "average": "double precision"},
    key=("category",),
)
Q6 = Latest("q6_prices_by_seller", {"seller": "bigint", "average": "double precision"}, key=("seller",))
LAST = 10
"""The number of a seller's last closed auctions that q6 averages."""
WON = "category int, seller bigint, auction bigint, price bigint, expires bigint, closed timestamp"


class Winner(StatefulProcessor):  # type: ignore[misc]  # PySpark has no types
    """Keeps an auction and its highest bid until the auction has ended, then returns the price.

    Each use of the state is a message to the JVM, so the bids of a batch use it together.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._auction = handle.getValueState(
            "auction", "category int, seller bigint, at bigint, expires bigint, price bigint"
        )
        self._early = handle.getListState("early", "at bigint, price bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Keep the highest bid; keep all bids that come before their auction."""
        bids: list[tuple[int, int]] = []
        opened = None
        for row in rows:
            if row.price is None:
                opened = (row.category, row.seller, row.at, row.expires, None)
            else:
                bids.append((row.at, row.price))
        if opened is not None:
            self._handle.registerTimer(opened[3])
            bids += [tuple(bid) for bid in self._early.get()]
            self._early.clear()
        auction = opened or self._auction.get()
        if auction is None:
            self._early.appendList(bids)
            self._handle.registerTimer(max(at for at, _ in bids))
            return iter(())
        category, seller, begins, expires, highest = auction
        prices = [price for at, price in bids if begins <= at <= expires]
        price = max(prices if highest is None else [*prices, highest], default=None)
        if opened is not None or price != highest:
            self._auction.update((category, seller, begins, expires, price))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Return the winning bid of an auction that has ended; forget bids for no auction."""
        auction = self._auction.get()
        if auction is None:
            self._early.clear()
            return
        category, seller, _, expires, price = auction
        if expiredTimerInfo.getExpiryTimeInMs() < expires:
            return  # the timer of a bid that came before its auction
        self._auction.clear()
        if price is not None:
            closed = datetime.fromtimestamp(expires / 1000, UTC)
            yield Row(
                category=category,
                seller=seller,
                auction=key[0],
                price=price,
                expires=expires,
                closed=closed,
            )

    def close(self) -> None:
        """Do nothing."""


class Average(StatefulProcessor):  # type: ignore[misc]  # PySpark has no types
    """Keeps the number of a category's closed auctions, and the sum of their prices."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._sums = handle.getValueState("sums", "auctions bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Add the prices."""
        auctions, total = self._sums.get() or (0, 0)
        for row in rows:
            auctions, total = auctions + 1, total + row.price
        self._sums.update((auctions, total))
        yield Row(category=key[0], auctions=auctions, average=total / auctions)

    def close(self) -> None:
        """Do nothing."""


class AverageOfLast(StatefulProcessor):  # type: ignore[misc]  # PySpark has no types
    """Keeps the prices of a seller's last closed auctions."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._last = handle.getListState("last", "expires bigint, auction bigint, price bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Replace the oldest prices."""
        earlier = [tuple(row) for row in self._last.get()]
        last = sorted([*earlier, *((row.expires, row.auction, row.price) for row in rows)])[-LAST:]
        self._last.put(last)
        yield Row(seller=key[0], average=sum(price for _, _, price in last) / len(last))

    def close(self) -> None:
        """Do nothing."""


def winning_bids(auctions: "DataFrame", bids: "DataFrame") -> "DataFrame":
    """Return the highest valid bid of each auction that has ended."""
    opened = auctions.select(
        F.col("id").alias("auction"),
        "category",
        "seller",
        "at",
        "expires",
        F.lit(None).cast("bigint").alias("price"),
        "time",
    )
    both = opened.unionByName(bids.select("auction", "at", "price", "time"), allowMissingColumns=True)
    return both.groupBy("auction").transformWithState(
        Winner(), WON, "Append", "EventTime", eventTimeColumnName="closed"
    )


def q4(auctions: "DataFrame", bids: "DataFrame") -> "DataFrame":
    """Average the winning bids of each category."""
    won = winning_bids(auctions, bids).groupBy("category")
    return won.transformWithState(
        Average(), "category int, auctions bigint, average double", "Append", "None"
    )


def q6(auctions: "DataFrame", bids: "DataFrame") -> "DataFrame":
    """Average the winning bids of each seller's last ten auctions."""
    won = winning_bids(auctions, bids).groupBy("seller")
    return won.transformWithState(AverageOfLast(), "seller bigint, average double", "Append", "None")
