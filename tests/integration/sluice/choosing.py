"""A pipeline for tests: one realtime tier that lets few records through, and makes one of them larger than can be sent."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.grouping import Local
from sluice.driver.positions import realtime_progress
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Kind, Mode

GIVEN = "n bigint, keep boolean, swell boolean"
KEPT = "n bigint, text string"
TOO_LARGE = 5_000_000
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

realtime_progress.EVERY_SECONDS = (
    5.0  # in the driver's process, which loads this: so that nobody has to wait for a minute
)


def chosen(raw: DataFrame) -> DataFrame:
    read = raw.select(F.from_json("value", GIVEN).alias("read"), "lineage").select("read.*", "lineage")
    return read.filter("keep").select(
        "n",
        F.when(F.col("swell"), F.repeat(F.lit("x"), TOO_LARGE - F.abs(F.col("n").cast("int")))).alias("text"),
        "lineage",
    )


PIPELINE = Pipeline(
    (
        Tier(
            "choose", Kind.ENTRY, (Stream("raw"),), chosen, outputs=(Stream("chosen", KEPT, Local()),), mode=Mode.REALTIME,
            quantum=SLOT, driver=DRIVER, filters=True,
        ),
    )
)  # fmt: skip
