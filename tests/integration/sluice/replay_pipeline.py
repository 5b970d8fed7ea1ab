"""A pipeline for `test_replay`: numbers go into a table and into sums; some numbers are bad until
the code is corrected.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.table import Once, Totals
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode

CORRECTED = "SLUICE_TEST_MENDED"
"""An environment variable: the code of a process that has this variable accepts all numbers."""
BAD = 50
"""Without the variable, one number of so many is bad."""
NUMBER = "n bigint, at bigint"
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

RAW = Stream("raw")
NUMBERS = Stream("numbers", NUMBER)
STORED = Once("stored", {"n": "bigint", "at": "bigint"})
SUMS = Totals("sums", {"third": "bigint", "numbers": "bigint", "total": "bigint"}, key=("third",))


def entered(raw: DataFrame) -> DataFrame:
    """Parse the records, and quarantine bad numbers."""
    parsed = raw.select(F.from_json("value", NUMBER).alias("parsed"), "lineage").select("parsed.*", "lineage")
    bad = (
        F.lit(None).cast("string")
        if CORRECTED in os.environ
        else F.when(F.col("n") % BAD == 7, F.lit("a bad number"))
    )
    return parsed.withColumn("reason", bad)


def summed(numbers: DataFrame) -> DataFrame:
    """Return what each number adds to which sum."""
    return numbers.select(
        (F.col("n") % 3).alias("third"),
        F.lit(1).cast("bigint").alias("numbers"),
        F.col("n").alias("total"),
        "lineage",
    )


PIPELINE = Pipeline(
    (
        Tier(
            "enter", Kind.ENTRY, (RAW,), entered, (NUMBERS,), mode=Mode.REALTIME, quantum=SLOT, driver=DRIVER
        ),
        Tier(
            "store",
            Kind.OUTBOUND,
            (NUMBERS,),
            lambda numbers: numbers,
            sink=STORED,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "tally",
            Kind.PROCESSING,
            (NUMBERS,),
            summed,
            sink=SUMS,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
