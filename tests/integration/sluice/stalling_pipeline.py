"""A pipeline for `test_hung_tasks`: tiers whose transforms hang when a test says so, and a slow
one.
"""

import os
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.grouping import Fields
from sluice.driver.process import task_progress
from sluice.sinks.table import Once
from sluice_ops.model.backpressure import Lag, Watermarks
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode

NUMBER = "n bigint, who string, until bigint"
STALL = "stall"
"""If the home has a file of this name, the next call of `stored` removes the file and never
returns.
"""
HANGS_AFTER, SLOW_AFTER = 60.0, 300.0
SLOW, SLOW_SECONDS = 4000, 0.1
"""The number of slow records, and the seconds that each takes: one batch, whose four tasks take
longer than `HANGS_AFTER`.
"""
NO_BACKPRESSURE = Watermarks(
    high=Lag(records=1_000_000, seconds=10_000), low=Lag(records=100_000, seconds=1_000)
)
SLOT = Quantum(cpu=1, memory=950, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

RAW = Stream("raw", watermarks=NO_BACKPRESSURE)
NUMBERS = Stream("numbers", NUMBER, Fields("who"), watermarks=NO_BACKPRESSURE)
KEPT = Stream("kept", NUMBER, Fields("who"), watermarks=NO_BACKPRESSURE)
STORED = Once("stored", {"n": "bigint", "who": "text"})
SLOWED = Once("slowed", {"n": "bigint", "who": "text"})
SLEEPS = (
    "reflect('java.lang.Thread', 'sleep', greatest(0L, until - bigint(reflect('java.lang.System', "
    "'currentTimeMillis'))))"
)

task_progress.TOLD_SECONDS = (
    30.0  # set in the driver's process, which loads this module; the default is a minute
)


def entered(raw: DataFrame) -> DataFrame:
    """Parse the records; a record with `until` keeps its task until that time."""
    read = raw.select(F.from_json("value", NUMBER).alias("read"), "lineage").select("read.*", "lineage")
    slept = F.when(F.col("until") > 0, F.expr(SLEEPS)).isNotNull()
    return read.select("n", "who", F.when(slept, F.col("until")).alias("until"), "lineage")


def stored(numbers: DataFrame) -> DataFrame:
    file = str(Path(os.environ["SLUICE_HOME"]) / STALL)

    def number_or_hang(number: int) -> int:
        import os  # noqa: PLC0415 - runs in an executor's Python
        import threading  # noqa: PLC0415

        if os.path.exists(file):  # noqa: PTH110
            os.unlink(file)  # noqa: PTH108 - only one of several callers succeeds
            threading.Event().wait()
        return number

    return numbers.select(F.udf(number_or_hang, "bigint")("n").alias("n"), "who", "lineage")


def slowed(numbers: DataFrame) -> DataFrame:
    count, seconds = SLOW, SLOW_SECONDS

    def number_slowly(number: int) -> int:
        import time  # noqa: PLC0415

        time.sleep(seconds if number < count else 0)
        return number

    return numbers.select(F.udf(number_slowly, "bigint")("n").alias("n"), "who", "lineage")


def _entry(name: str, stream: Stream, hangs_after: float | None) -> Tier:
    return Tier(
        name,
        Kind.ENTRY,
        (RAW,),
        entered,
        (stream,),
        mode=Mode.REALTIME,
        hangs_after=hangs_after,
        quantum=SLOT,
        driver=DRIVER,
    )


def _into(table: Once, name: str, transform: object, most: int, hangs_after: float) -> Tier:
    return Tier(
        name,
        Kind.OUTBOUND,
        (NUMBERS,),
        transform,  # type: ignore[arg-type]
        sink=table,
        delivery=Delivery.EXACTLY_ONCE,
        max_offsets=most,
        hangs_after=hangs_after,
        quantum=SLOT,
        driver=DRIVER,
    )


PIPELINE = Pipeline(
    (
        _entry("enter", NUMBERS, HANGS_AFTER),
        _entry("keep", KEPT, None),
        _into(STORED, "store", stored, 2000, HANGS_AFTER),
        _into(SLOWED, "slow", slowed, SLOW, SLOW_AFTER),
    )
)
