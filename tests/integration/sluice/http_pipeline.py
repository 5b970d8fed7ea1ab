"""A pipeline for `test_http_sink`: one tier calls a service until it answers, another at
most once.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.http import Post
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind

SERVICE = os.environ.get("SLUICE_TEST_SERVICE", "http://127.0.0.1:1")
"""The address of the test's service; the test sets it before it publishes."""
AT_RISK = 200
RAW = Stream("raw")
NUMBER = {"n": "bigint"}
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def read(raw: DataFrame) -> DataFrame:
    """Parse the records."""
    return raw.select(F.from_json("value", "n bigint").alias("read"), "lineage").select("read.*", "lineage")


PIPELINE = Pipeline(
    (
        Tier(
            "call",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=Post("crm", NUMBER, f"{SERVICE}/crm"),
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "notify",
            Kind.OUTBOUND,
            (RAW,),
            read,
            sink=Post("bell", NUMBER, f"{SERVICE}/bell"),
            delivery=Delivery.AT_MOST_ONCE,
            max_offsets=AT_RISK,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
