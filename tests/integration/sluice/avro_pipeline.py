"""A pipeline for `test_formats`: records in Avro from outside, written in Avro, a table, and a
count in Avro; and records in Avro that a transform reads itself.
"""

import json

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code
from pyspark.sql.avro.functions import from_avro

from sluice import (
    Avro,
    Bytes,
    Delivery,
    Fields,
    Kind,
    Latest,
    Mode,
    Once,
    Pipeline,
    Quantum,
    State,
    Stream,
    Tier,
)

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
COUNTS = Stream(
    "counts",
    "user string, hits bigint",
    Fields("user"),
    format=Avro(schema(user=MAYBE, hits={"type": "long"})),
)
BARE = Stream("bare", format=Bytes())
"""Records in Avro without the id of a schema."""


def entered(raw: DataFrame) -> DataFrame:
    """Pass the records on."""
    return raw.selectExpr("id", "user", "lineage")


def counted(hits: DataFrame) -> DataFrame:
    """Count the hits of each user, and those of nobody."""
    return hits.groupBy(F.coalesce("user", F.lit("nobody")).alias("user")).agg(F.count("*").alias("hits"))


def read(bare: DataFrame) -> DataFrame:
    """Read the records by Spark's own function."""
    hit = from_avro("value", schema(id=TEXT, user=MAYBE), {"mode": "PERMISSIVE"}).alias("hit")
    return bare.select(hit, "lineage").select("hit.id", "hit.user", "lineage")


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
        Tier(
            "count",
            Kind.PROCESSING,
            (HITS,),
            counted,
            (COUNTS,),
            sink=Latest("counted", {"user": "text", "hits": "bigint"}, key=("user",)),
            state=State(60),
            quantum=Quantum(cpu=1, memory=950, threads=4),
            driver=DRIVER,
        ),
        Tier(
            "read",
            Kind.ENTRY,
            (BARE,),
            read,
            sink=Once("read", {"id": "text", "user": "text"}),
            delivery=Delivery.EXACTLY_ONCE,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
