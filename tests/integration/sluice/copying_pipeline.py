"""A pipeline for `test_partitions_cut_back`: tiers copy raw streams into streams, in micro-batches
and in realtime, and into a table.
"""

from pyspark.sql import DataFrame

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.table import Once
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode

RAW, COPIED = Stream("raw"), Stream("copied", "line string")
LIVE, FOLLOWED = Stream("live"), Stream("followed", "line string")
STEADY, PASSED = Stream("steady"), Stream("passed", "line string")
SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def named(raw: DataFrame) -> DataFrame:
    """Name the column `line`."""
    return raw.withColumnRenamed("value", "line")


PIPELINE = Pipeline(
    (
        Tier("copy", Kind.ENTRY, (RAW,), named, outputs=(COPIED,), quantum=SLOT, driver=DRIVER),
        Tier(
            "load",
            Kind.OUTBOUND,
            (COPIED,),
            lambda copied: copied,
            sink=Once("loaded", {"line": "text"}),
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "pass",
            Kind.ENTRY,
            (STEADY,),
            named,
            outputs=(PASSED,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "keep",
            Kind.ENTRY,
            (STEADY,),
            named,
            sink=Once("kept", {"line": "text"}),
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "follow",
            Kind.ENTRY,
            (LIVE,),
            named,
            outputs=(FOLLOWED,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
