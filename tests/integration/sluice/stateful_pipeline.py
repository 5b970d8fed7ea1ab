"""A pipeline for tests: tiers that hold state in Spark, in windows, in joins and in their own
state.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import structlog
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from sluice.api.declarations import Pipeline, State, Stream, Tier, Transform
from sluice.api.grouping import Fields
from sluice.api.hooks import Hooks
from sluice.records.joins import How, joined
from sluice.sinks.table import Latest
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Kind, Mode

log = structlog.get_logger()

LATENESS = 60
REST_SECONDS = 60
PAUSE_SECONDS = 3
RAW = Stream("raw")
HITS = Stream("hits", "id bigint, who string, at bigint")
BUYS = Stream("buys", "id bigint, hit bigint, at bigint")
PAYS = Stream("pays", "id bigint, buy bigint, at bigint")
WINDOW_CHANGES = Stream("window-changes", "who string, since timestamp, hits bigint", Fields("who"))
BUSY = Stream("busy", "since timestamp, ids bigint", Fields("since"))
BOUGHT_HITS = Stream("bought-hits", "id bigint, buy bigint", Fields("id"))
SUM_CHANGES = Stream("sum-changes", "who string, hits bigint, ids bigint", Fields("who"))
BUYERS_BY_TIME = Stream("buyers-by-time", "who string, since timestamp", Fields("who"))
SLOT = Quantum(cpu=1, memory=950, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def entered(raw: DataFrame) -> DataFrame:
    """Parse the records. This tier does not run: the test writes its output."""
    return raw.select(
        F.from_json("value", HITS.columns or "").alias("read"), F.lit("hits").alias("to"), "lineage"
    ).select("read.*", "to", "lineage")


def by_window(hits: DataFrame) -> DataFrame:
    """Count hits by user and ten seconds."""
    counted = hits.groupBy("who", F.window("time", "10 seconds")).agg(
        F.count("*").alias("hits"), F.sum("id").alias("ids")
    )
    return counted.select("who", F.col("window.start").alias("since"), "hits", "ids")


def overlapping(hits: DataFrame) -> DataFrame:
    """Count hits by user and ten seconds, from every fifth second on."""
    counted = hits.groupBy("who", F.window("time", "10 seconds", "5 seconds")).agg(
        F.count("*").alias("hits"), F.sum("id").alias("ids")
    )
    return counted.select("who", F.col("window.start").alias("since"), "hits", "ids")


def busiest(hits: DataFrame) -> DataFrame:
    """Find, for each twenty seconds, the most hits that a user had in ten of these seconds."""
    by_user = hits.groupBy("who", F.window("time", "10 seconds")).agg(
        F.count("*").alias("hits"), F.sum("id").alias("ids")
    )
    of_all = by_user.groupBy(F.window(F.window_time("window"), "20 seconds")).agg(
        F.max("hits").alias("hits"), F.sum("ids").alias("ids")
    )
    return of_all.select(F.col("window.start").alias("since"), "hits", "ids")


def by_minute(busy: DataFrame) -> DataFrame:
    """Count the rows of `busiest` by minute, and add their ids up."""
    return busy.groupBy(F.date_trunc("minute", "since").alias("minute")).agg(
        F.count("*").alias("rows"), F.sum("ids").alias("ids")
    )


def bought(how: How) -> Transform:
    """Return a transform that finds the buy within ten seconds after each hit."""

    def pairs(hits: DataFrame, buys: DataFrame) -> DataFrame:
        pairs_of_rows = joined(hits, buys, hits["id"] == buys["hit"], within=(0, 10), how=how)
        return pairs_of_rows.select(hits["id"].alias("id"), buys["id"].alias("buy"))

    return pairs


def buyers(hits: DataFrame, buys: DataFrame) -> DataFrame:
    """Find the users whose hits were bought, each once in ten seconds."""
    rows = joined(hits, buys, hits["id"] == buys["hit"], within=(0, 10), how="inner")
    by_time = rows.select("who", F.window("joined_time", "10 seconds").alias("window"))
    return by_time.dropDuplicates(["who", "window"]).select("who", F.col("window.start").alias("since"))


def in_sessions(hits: DataFrame) -> DataFrame:
    """Count the hits of each user between pauses."""
    counted = hits.groupBy("who", F.session_window("time", f"{PAUSE_SECONDS} seconds")).agg(
        F.count("*").alias("hits"), F.sum("id").alias("ids")
    )
    return counted.select("who", F.col("session_window.start").alias("since"), "hits", "ids")


def paid(hits: DataFrame, buys: DataFrame, pays: DataFrame) -> DataFrame:
    """Find the buy of each hit, and its payment, and count them by user and ten seconds."""
    sold = joined(hits, buys, hits["id"] == buys["hit"], within=(0, 10), how="left")
    rows = joined(sold, pays, buys["id"] == pays["buy"], within=(0, 10), how="inner")
    counted = rows.groupBy("who", F.window("joined_time", "10 seconds")).agg(
        F.count("*").alias("hits"), F.sum(hits["id"]).alias("ids")
    )
    return counted.select("who", F.col("window.start").alias("since"), "hits", "ids")


class Sum(StatefulProcessor):
    """Keeps the number of a user's hits, and the sum of their ids."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._sums = handle.getValueState("sums", "hits bigint, ids bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Add the rows to the state."""
        hits, ids = self._sums.get() if self._sums.exists() else (0, 0)
        for row in rows:
            hits, ids = hits + 1, ids + row.id
        self._sums.update((hits, ids))
        yield Row(who=key[0], hits=hits, ids=ids)

    def close(self) -> None:
        """Do nothing."""


class SumOfTime(Sum):
    """Keeps the sums of a user and ten seconds, and returns them when a timer says that all hits
    came.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add the rows to the state."""
        for _ in super().handleInputRows(key, rows, timerValues):
            self._handle.registerTimer((key[1] + 1) * 10_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        """Return the sums, and forget them."""
        hits, ids = self._sums.get()
        self._sums.clear()
        yield Row(who=key[0], since=datetime.fromtimestamp(key[1] * 10, UTC), hits=hits, ids=ids)


class SumSinceRest(Sum):
    """Forgets the sums of a user who has rested for `REST_SECONDS`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._sums = handle.getValueState("sums", "hits bigint, ids bigint", REST_SECONDS * 1000)


def summed_since_rest(hits: DataFrame) -> DataFrame:
    """Keep a state with a time to live."""
    return hits.groupBy("who").transformWithState(
        SumSinceRest(), "who string, hits bigint, ids bigint", "Update", "ProcessingTime"
    )


def timed(hits: DataFrame) -> DataFrame:
    """Keep a state with timers."""
    tens = hits.withColumn("tens", (F.unix_millis("time") / 10_000).cast("bigint"))
    return tens.groupBy("who", "tens").transformWithState(
        SumOfTime(), "who string, since timestamp, hits bigint, ids bigint", "Update", "EventTime"
    )


def summed(hits: DataFrame) -> DataFrame:
    """Keep a state with `transformWithState`."""
    return hits.groupBy("who").transformWithState(
        Sum(), "who string, hits bigint, ids bigint", "Update", "None"
    )


class LoggingHooks(Hooks):
    """Logs each call to the driver's log."""

    def pause(self) -> None:
        log.info("hook: pause")

    def get_internal_state(self) -> bytes:
        """Return a state that names this process."""
        return f"left by {os.getpid()}".encode()

    def resume_execution(self, state: bytes) -> None:
        """Log the state of the earlier process."""
        log.info("hook: resumed", state=state.decode())


WINDOWS = Latest(
    "windows",
    {"who": "text", "since": "timestamptz", "hits": "bigint", "ids": "bigint"},
    key=("who", "since"),
)
SLIDING = Latest("sliding", WINDOWS.columns, key=WINDOWS.key)
PAID = Latest("paid", WINDOWS.columns, key=WINDOWS.key)
SESSIONS = Latest("sessions", WINDOWS.columns, key=WINDOWS.key)
TIMED = Latest("timed", WINDOWS.columns, key=WINDOWS.key)
BUYERS = Latest("buyers", {"who": "text", "since": "timestamptz"}, key=("who", "since"))
BUSIEST = Latest("busiest", {"since": "timestamptz", "hits": "bigint", "ids": "bigint"}, key=("since",))
MINUTES = Latest("minutes", {"minute": "timestamptz", "rows": "bigint", "ids": "bigint"}, key=("minute",))
PAIR = {"id": "bigint", "buy": "bigint"}
JOINS: dict[How, Latest] = {
    "inner": Latest("pairs", PAIR, key=("id",)),
    "left": Latest("bought", PAIR, key=("id",)),
    "right": Latest("sold", PAIR, key=("buy",)),
}
SUMS = Latest("sums", {"who": "text", "hits": "bigint", "ids": "bigint"}, key=("who",))
SINCE_REST = Latest("since_rest", SUMS.columns, key=SUMS.key)
STATE = State(LATENESS, time="at")

PIPELINE = Pipeline(
    (
        Tier(
            "enter",
            Kind.ENTRY,
            (RAW,),
            entered,
            (HITS, BUYS, PAYS),
            mode=Mode.BATCH,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "by-window",
            Kind.PROCESSING,
            (HITS,),
            by_window,
            outputs=(WINDOW_CHANGES,),
            sink=WINDOWS,
            state=STATE,
            hooks=LoggingHooks(),
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier("summed", Kind.PROCESSING, (HITS,), summed, sink=SUMS, state=STATE, quantum=SLOT, driver=DRIVER),
        Tier(
            "since-rest",
            Kind.PROCESSING,
            (HITS,),
            summed_since_rest,
            outputs=(SUM_CHANGES,),
            sink=SINCE_REST,
            state=STATE,
            quantum=SLOT,
            driver=DRIVER,
        ),
        *(
            Tier(
                table.name,
                Kind.PROCESSING,
                (HITS,),
                transform,
                outputs=outputs,
                sink=table,
                state=STATE,
                quantum=SLOT,
                driver=DRIVER,
            )
            for table, transform, outputs in (
                (SLIDING, overlapping, ()),
                (BUSIEST, busiest, (BUSY,)),
                (SESSIONS, in_sessions, ()),
                (TIMED, timed, ()),
            )
        ),
        Tier(
            "minutes",
            Kind.PROCESSING,
            (BUSY,),
            by_minute,
            sink=MINUTES,
            state=State(LATENESS),
            quantum=SLOT,
            driver=DRIVER,
        ),
        *(
            Tier(
                table.name,
                Kind.PROCESSING,
                (HITS, BUYS),
                bought(how),
                outputs=(BOUGHT_HITS,) if how == "left" else (),
                sink=table,
                state=STATE,
                filters=True,
                quantum=SLOT,
                driver=DRIVER,
            )
            for how, table in JOINS.items()
        ),
        Tier(
            "buyers",
            Kind.PROCESSING,
            (HITS, BUYS),
            buyers,
            outputs=(BUYERS_BY_TIME,),
            sink=BUYERS,
            state=State(LATENESS),  # by arrival
            filters=True,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "paid",
            Kind.PROCESSING,
            (HITS, BUYS, PAYS),
            paid,
            sink=PAID,
            state=STATE,
            filters=True,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
