"""A pipeline for `test_protobuf`: messages from outside, written as messages, a table, and a
count in messages.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

from sluice import (
    Delivery,
    Fields,
    Kind,
    Latest,
    Mode,
    Once,
    Pipeline,
    Protobuf,
    Quantum,
    State,
    Stream,
    Tier,
)

SLOT = Quantum(cpu=1, memory=750, threads=4)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def hit(*names: str) -> Any:
    """Return the class of a hit with these optional texts, as `protoc` would generate the class."""
    file = FileDescriptorProto(name="hit.proto", package="hits", syntax="proto3")
    message = file.message_type.add(name="Hit")
    for index, name in enumerate(names):
        message.oneof_decl.add(name=f"_{name}")
        field = {"name": name, "number": index + 1, "oneof_index": index, "proto3_optional": True}
        message.field.add(type="TYPE_STRING", label="LABEL_OPTIONAL", **field)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("hits.Hit"))


RAW = Stream("raw", format=Protobuf(hit("id", "user")))
COLUMNS, HIT = "id string, user string", hit("id", "user")
HITS = Stream("hits", COLUMNS, Fields("id"), format=Protobuf(HIT))
COUNTS = Stream("counts", "user string, hits string", Fields("user"), format=Protobuf(hit("user", "hits")))


def entered(raw: DataFrame) -> DataFrame:
    """Pass the records on."""
    return raw.selectExpr("id", "user", "lineage")


def counted(hits: DataFrame) -> DataFrame:
    """Count the hits of each user, and those of nobody."""
    count = F.count("*").cast("string").alias("hits")
    return hits.groupBy(F.coalesce("user", F.lit("nobody")).alias("user")).agg(count)


PIPELINE = Pipeline(
    (
        Tier("entry", Kind.ENTRY, (RAW,), entered, (HITS,), mode=Mode.REALTIME, quantum=SLOT, driver=DRIVER),
        Tier(
            "store",
            Kind.OUTBOUND,
            (HITS,),
            lambda hits: hits.selectExpr("id", "user", "lineage"),
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
            sink=Latest("counted", {"user": "text", "hits": "text"}, key=("user",)),
            state=State(60),
            quantum=Quantum(cpu=1, memory=950, threads=4),
            driver=DRIVER,
        ),
    )
)
