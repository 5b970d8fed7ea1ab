"""A pipeline for `test_lagging_branch`: a table, and beside it a service that may lag."""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.http import Post
from sluice.sinks.table import Once
from sluice_ops.model.backpressure import Lag, Watermarks
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind

SERVICE = os.environ.get("SLUICE_TEST_SERVICE", "http://127.0.0.1:1")
"""The address of the test's service; the test sets it before it publishes."""
MARKS = Watermarks(high=Lag(records=3_000, seconds=20), low=Lag(records=500, seconds=5))
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

RAW = Stream("raw")
NUMBERS = Stream("numbers", "n bigint", watermarks=MARKS)


def entered(raw: DataFrame) -> DataFrame:
    """Parse the records."""
    return raw.select(F.from_json("value", "n bigint").alias("read"), "lineage").select("read.*", "lineage")


PIPELINE = Pipeline(
    (
        Tier("enter", Kind.ENTRY, (RAW,), entered, (NUMBERS,), quantum=SLOT, driver=DRIVER),
        Tier(
            "store",
            Kind.OUTBOUND,
            (NUMBERS,),
            lambda numbers: numbers,
            sink=Once("stored", {"n": "bigint"}),
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "call",
            Kind.OUTBOUND,
            (NUMBERS,),
            lambda numbers: numbers,
            sink=Post("crm", {"n": "bigint"}, f"{SERVICE}/crm"),
            holds=False,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
