"""A pipeline for `test_bytes`: records that are no text, a stream of them, a table and files."""

from pyspark.sql import DataFrame

from sluice import (
    Bytes,
    Delivery,
    Fields,
    JsonFiles,
    Kind,
    Mode,
    Once,
    ParquetFiles,
    Pipeline,
    Quantum,
    Sinks,
    Stream,
    Tier,
)

SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)
RAW = Stream("raw", format=Bytes())
COPIES = Stream("copies", "value binary", Fields("key"), format=Bytes())
BOTH = {"key": "bytea", "value": "bytea"}


def with_key(records: DataFrame) -> DataFrame:
    """Return the records with the bytes of their keys."""
    return records.selectExpr("lineage.key as key", "value", "lineage")


PIPELINE = Pipeline(
    (
        Tier(
            "enter", Kind.ENTRY, (RAW,), with_key, (COPIES,), mode=Mode.REALTIME, quantum=SLOT, driver=DRIVER
        ),
        Tier(
            "keep",
            Kind.OUTBOUND,
            (COPIES,),
            with_key,
            sink=Sinks(
                Once("kept", BOTH),
                ParquetFiles("kept_parquet", BOTH, folder="parquet"),
                JsonFiles("kept_lines", BOTH, folder="lines"),
            ),
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
