"""A pipeline for `test_clocks_stepped`: two tiers that record the wall clock of their executors."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.grouping import Fields
from sluice.sinks.table import Once
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode

NUMBER = "n bigint, who string, at bigint"
SLOT = Quantum(cpu=1, memory=950, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)

RAW = Stream("raw")
NUMBERS = Stream("numbers", f"{NUMBER}, entered bigint", Fields("who"))
STORED = Once("stored", {"n": "bigint", "who": "text", "entered": "bigint", "stored": "bigint"})


def ahead() -> Column:
    """Return how far the executor's wall clock is ahead of the record's time. Unit: seconds."""
    return F.round(
        (F.expr("reflect('java.lang.System', 'currentTimeMillis')").cast("bigint") - F.col("at")) / 1000
    ).cast("bigint")


def entered(raw: DataFrame) -> DataFrame:
    read = raw.select(F.from_json("value", NUMBER).alias("read"), "lineage").select("read.*", "lineage")
    return read.select("n", "who", "at", ahead().alias("entered"), "lineage")


def stored(numbers: DataFrame) -> DataFrame:
    return numbers.select("n", "who", "entered", ahead().alias("stored"), "lineage")


PIPELINE = Pipeline(
    (
        Tier(
            "enter", Kind.ENTRY, (RAW,), entered, (NUMBERS,), mode=Mode.REALTIME, quantum=SLOT, driver=DRIVER
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
    )
)
