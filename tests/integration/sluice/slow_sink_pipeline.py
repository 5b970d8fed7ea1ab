"""A pipeline for `test_backpressure`: a realtime tier, and a tier whose table can be
slowed down.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.grouping import Fields
from sluice.sinks.table import Once
from sluice_ops.model.backpressure import Lag, Watermarks
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode

NUMBER = "n bigint, who string"
MARKS = Watermarks(high=Lag(records=3_000, seconds=20), low=Lag(records=500, seconds=5))
BATCH = 1_000
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

RAW = Stream("raw")
NUMBERS = Stream("numbers", NUMBER, Fields("who"), watermarks=MARKS)
STORED = Once("stored", {"n": "bigint", "who": "text", "slot": "text"})


def entered(raw: DataFrame) -> DataFrame:
    """Parse the records."""
    return raw.select(F.from_json("value", NUMBER).alias("read"), "lineage").select("read.*", "lineage")


def with_slot(numbers: DataFrame) -> DataFrame:
    """Add the slot that processes the record; it is a part of the path of its executor's folder."""
    folder = F.java_method(F.lit("java.lang.System"), F.lit("getProperty"), F.lit("user.dir"))
    return numbers.withColumn("slot", F.regexp_extract(folder, "/(slot-[^/]+)", 1))


PIPELINE = Pipeline(
    (
        Tier(
            "enter",
            Kind.ENTRY,
            (RAW,),
            entered,
            (NUMBERS,),
            mode=Mode.REALTIME,
            max_offsets=BATCH,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "store",
            Kind.OUTBOUND,
            (NUMBERS,),
            with_slot,
            sink=STORED,
            delivery=Delivery.EXACTLY_ONCE,
            max_offsets=BATCH,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
