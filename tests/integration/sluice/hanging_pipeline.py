"""A pipeline for tests: a tier that writes a stream, and one for each kind of table, whose drivers
can hang.
"""

import os
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, State, Stream, Tier
from sluice.api.grouping import Fields
from sluice.api.hooks import Hooks
from sluice.driver.process import life
from sluice.driver.process.life import Life
from sluice.sinks.table import Latest, Once, Totals
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode

NUMBER = "n bigint, who string, at bigint"
SLEEPS = "sleeps"
"""While the home has a file of this name, a driver of `enter` that should stop hangs."""
LOCKED = "locked-{tier}"
"""When the home has a file of this name, the tier's driver removes the file, and its working loop
hangs for ever.
"""
SLOT = Quantum(cpu=1, memory=950, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

RAW = Stream("raw")
NUMBERS = Stream("numbers", NUMBER, Fields("who"))
STORED = Once("stored", {"n": "bigint", "who": "text"})
SUMMED = Totals("summed", {"who": "text", "hits": "bigint", "ns": "bigint"}, key=("who",), counted=("hits",))
TALLIED = Latest(
    "tallied", {"who": "text", "since": "timestamptz", "hits": "bigint", "ns": "bigint"}, key=("who", "since")
)


class Sleeps(Hooks):
    """Hangs at a stop, while the query runs on."""

    def pause(self) -> None:
        while (Path(os.environ["SLUICE_HOME"]) / SLEEPS).exists():
            time.sleep(0.1)


class LockedLife(Life):
    """A driver's life whose working loop can hang."""

    def _measure(self) -> None:
        file = Path(os.environ["SLUICE_HOME"]) / LOCKED.format(tier=self._follower._tier)
        if file.exists():
            file.unlink()
            threading.Event().wait()
        super()._measure()


# the driver's process loads this module before it creates its Life
life.Life = LockedLife  # type: ignore[misc]


def entered(raw: DataFrame) -> DataFrame:
    """Parse the records."""
    return raw.select(F.from_json("value", NUMBER).alias("read"), "lineage").select("read.*", "lineage")


def stored(numbers: DataFrame) -> DataFrame:
    """Return the records unchanged."""
    return numbers.select("n", "who", "lineage")


def summed(numbers: DataFrame) -> DataFrame:
    """Add the records up by user, in the table."""
    return numbers.select("who", F.lit(1).cast("bigint").alias("hits"), F.col("n").alias("ns"), "lineage")


def tallied(numbers: DataFrame) -> DataFrame:
    """Add the records up by user and ten seconds."""
    counted = numbers.groupBy("who", F.window("time", "10 seconds")).agg(
        F.count("*").alias("hits"), F.sum("n").alias("ns")
    )
    return counted.select("who", F.col("window.start").alias("since"), "hits", "ns")


PIPELINE = Pipeline(
    (
        Tier(
            "enter",
            Kind.ENTRY,
            (RAW,),
            entered,
            (NUMBERS,),
            mode=Mode.REALTIME,
            hooks=Sleeps(),
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "store",
            Kind.OUTBOUND,
            (NUMBERS,),
            stored,
            sink=STORED,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier("sum", Kind.PROCESSING, (NUMBERS,), summed, sink=SUMMED, quantum=SLOT, driver=DRIVER),
        Tier(
            "tally",
            Kind.PROCESSING,
            (NUMBERS,),
            tallied,
            sink=TALLIED,
            state=State(60, time="at"),
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
