"""A pipeline for benches: three realtime tiers that pass records on unchanged."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice.api.declarations import Pipeline, Stream, Tier
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Kind, Mode

COLUMNS = "id bigint, sent bigint"
RAW, ONE, TWO, THREE = Stream("raw"), Stream("one", COLUMNS), Stream("two", COLUMNS), Stream("three", COLUMNS)
SLOT = Quantum(cpu=1, memory=750, threads=2)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def parsed(raw: DataFrame) -> DataFrame:
    return raw.select(F.from_json("value", COLUMNS).alias("read"), "lineage").select("read.*", "lineage")


def same(records: DataFrame) -> DataFrame:
    return records


PIPELINE = Pipeline(
    (
        Tier(
            "first",
            Kind.ENTRY,
            (RAW,),
            parsed,
            outputs=(ONE,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "second",
            Kind.PROCESSING,
            (ONE,),
            same,
            outputs=(TWO,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "third",
            Kind.PROCESSING,
            (TWO,),
            same,
            outputs=(THREE,),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
