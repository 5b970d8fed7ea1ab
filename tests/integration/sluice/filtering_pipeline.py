"""A pipeline for `test_quiet_partitions`: one realtime tier that passes few records on, and makes
one too large to be sent.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.grouping import Local
from sluice.driver.positions import realtime_progress
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Kind, Mode

INPUT_COLUMNS = "n bigint, keep boolean, swell boolean"
OUTPUT_COLUMNS = "n bigint, text string"
TOO_LARGE = 5_000_000
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

realtime_progress.EVERY_SECONDS = (
    5.0  # set in the driver's process, which loads this module; the default is a minute
)


def chosen(raw: DataFrame) -> DataFrame:
    read = raw.select(F.from_json("value", INPUT_COLUMNS).alias("read"), "lineage").select(
        "read.*", "lineage"
    )
    return read.filter("keep").select(
        "n",
        F.when(F.col("swell"), F.repeat(F.lit("x"), TOO_LARGE - F.abs(F.col("n").cast("int")))).alias("text"),
        "lineage",
    )


PIPELINE = Pipeline(
    (
        Tier(
            "choose",
            Kind.ENTRY,
            (Stream("raw"),),
            chosen,
            outputs=(Stream("chosen", OUTPUT_COLUMNS, Local()),),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
            filters=True,
        ),
    )
)
