"""A pipeline for `test_formats`: records in Avro from outside, written in Avro, and a table."""

import json

from pyspark.sql import DataFrame

from sluice import Avro, Delivery, Fields, Kind, Mode, Once, Pipeline, Quantum, Stream, Tier

SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)
TEXT, MAYBE = {"type": "string"}, {"type": ["null", "string"], "default": None}


def schema(**fields: object) -> str:
    """Return an Avro schema of a hit; a field is a type, with a default if it has one."""
    described = [{"name": name, **field} for name, field in fields.items()]  # type: ignore[dict-item]
    return json.dumps({"type": "record", "name": "Hit", "fields": described})


RAW = Stream("raw", format=Avro(schema(id=TEXT, user=MAYBE)))
COLUMNS, SCHEMA = "id string, user string", schema(id=TEXT, user=MAYBE)
HITS = Stream("hits", COLUMNS, Fields("id"), format=Avro(SCHEMA))


def entered(raw: DataFrame) -> DataFrame:
    """Pass the records on."""
    return raw.selectExpr("id", "user", "lineage")


PIPELINE = Pipeline(
    (
        Tier("entry", Kind.ENTRY, (RAW,), entered, (HITS,), mode=Mode.REALTIME, quantum=SLOT, driver=DRIVER),
        Tier(
            "store",
            Kind.OUTBOUND,
            (HITS,),
            lambda hits: hits.select("id", "user", "lineage"),
            sink=Once("stored", {"id": "text", "user": "text"}),
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
