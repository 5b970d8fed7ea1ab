"""A pipeline for tests: raw records go into a table whose columns do not accept every value, and
unchanged into a stream.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.table import Once
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind

LOADED = Once("loaded", {"line": "text", "n": "smallint", "doc": "jsonb", "at": "timestamptz"})


def loaded(raw: DataFrame) -> DataFrame:
    """Parse `n;doc;seconds`; the table decides what it accepts."""
    parts = F.split("value", ";")
    at = F.timestamp_seconds(F.get(parts, F.lit(2)).cast("bigint"))
    return raw.select(
        F.col("value").alias("line"),
        F.get(parts, F.lit(0)).cast("bigint").alias("n"),
        F.get(parts, F.lit(1)).alias("doc"),
        at.alias("at"),
        "lineage",
    )


RAW = Stream("raw")
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)
PIPELINE = Pipeline(
    (
        Tier(
            "copy",
            Kind.ENTRY,
            (RAW,),
            lambda raw: raw,
            outputs=(Stream("copied", "value string"),),
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "load",
            Kind.OUTBOUND,
            (RAW,),
            loaded,
            sink=LOADED,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
