"""Formats in Spark, with a real schema registry and no Kafka: what a tier reads and writes."""

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code
from pyspark.sql.avro.functions import from_avro

from sluice import Avro, Bytes, DeclarationError, Fields, Kind, Latest, Once, Pipeline, State, Stream, Tier
from sluice.api.formats import header
from sluice.schema_registry import with_ids
from sluice.testing import run, run_batches
from tests.integration.sluice.avro_pipeline import MAYBE, TEXT, schema
from tests.schema_registry import Registry, registry

pytestmark = [pytest.mark.timeout(300), pytest.mark.long, pytest.mark.usefixtures("session_with_packages")]

LONG = {"type": "long"}
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "string"}}}'
HIT = Avro(schema(id=TEXT, user=MAYBE, at={"type": {"type": "long", "logicalType": "timestamp-millis"}}))
HIT_COLUMNS = "id string, user string, at timestamp"
RAW, HITS = Stream("raw", format=HIT), Stream("hits", HIT_COLUMNS, format=HIT)
GARBAGE = (
    b"{}",
    b"",
    b"\0\0\0\0\0\x02",
    b"\0\0\0\0\0\xff\xff\xff\xff\x0f",
    b"\0\0\0\0\0\xfe\xff\xff\xff\x0e",
)
"""Not Avro; empty; cut off; a negative length; a length of two gigabytes."""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def tier(source: Stream, *outputs: Stream, transform=lambda records: records, **more) -> Tier:
    return Tier("entry", Kind.ENTRY, (source,), transform, outputs, **more)


def test_records_are_read_and_written_by_their_schema() -> None:
    hit = {"id": "a", "at": "2026-11-29T10:00:00.123Z"}
    result = run(tier(RAW, HITS), [hit, hit | {"user": "anna"}, *GARBAGE])
    assert [(row["id"], row["user"], row["at"].microsecond) for row in result.rows] == [
        ("a", None, 123_000),
        ("a", "anna", 123_000),
    ]
    reasons = [row["reason"] for row in result.quarantined]
    assert [reason.startswith("the record does not begin with a byte 0") for reason in reasons[:2]] == [
        True
    ] * 2
    assert reasons[2:] == ["the record is not valid Avro of its schema id 0"] * 3
    store = tier(RAW, sink=Once("t", {"id": "text"}), transform=lambda raw: raw.select("id", "lineage"))
    stored = run(store, [hit, b"{}"])
    assert [row["id"] for row in stored.rows] == ["a"]
    assert "does not begin with a byte 0" in stored.quarantined[0]["reason"]


def test_a_record_that_the_schema_has_no_place_for_is_quarantined() -> None:
    text = Stream("text")
    made = tier(
        text,
        Stream("hits", "id string, user string", format=Avro(schema(id=TEXT, user=TEXT))),
        transform=lambda raw: raw.select(
            F.col("value").alias("id"), F.when(F.col("value") != "b", "anna").alias("user"), "lineage"
        ),
    )
    result = run(made, ["a", "b"])
    assert [row["id"] for row in result.rows] == ["a"]
    assert "does not fit the Avro schema of hits" in result.quarantined[0]["reason"]
    assert result.quarantined[0]["reason"].endswith("null columns: user")


def test_bytes_pass_as_they_are() -> None:
    copies = tier(Stream("raw", format=Bytes()), Stream("copies", "value binary", format=Bytes()))
    values = [bytes(range(256)), b"", b"\xff\xfe"]
    assert [row["value"] for row in run(copies, values).rows] == values


def test_a_transform_reads_avro_without_a_registry_from_bytes() -> None:
    """Spark's own function reads records that have no id of a schema."""

    def read(raw):
        hit = from_avro("value", schema(id=TEXT, user=MAYBE), {"mode": "PERMISSIVE"}).alias("hit")
        return raw.select(hit, "lineage").select("hit.id", "hit.user", "lineage")

    made = tier(Stream("raw", format=Bytes()), Stream("hits", "id string, user string"), transform=read)
    rows = run(made, [b"\x02a\x00", b"\x02b\x02\x08anna", b"\xff"]).rows
    assert [(row["id"], row["user"]) for row in rows] == [("a", None), ("b", "anna"), (None, None)]


def test_a_tier_with_state_reads_and_writes_avro() -> None:
    hits = Stream("hits", "user string, at bigint", Fields("user"), format=Avro(schema(user=MAYBE, at=LONG)))
    counts = Stream(
        "counts", "user string, hits bigint", Fields("user"), format=Avro(schema(user=MAYBE, hits=LONG))
    )

    def counted(records):
        return records.where("user is not null").groupBy("user").agg(F.count("*").alias("hits"))

    counting = Tier(
        "counts",
        Kind.PROCESSING,
        (hits,),
        counted,
        (counts,),
        sink=Latest("counts", {"user": "text", "hits": "bigint"}, key=("user",)),
        state=State(60, time="at"),
    )
    anna = {"user": "anna", "at": 60_000}
    batches = run_batches(counting, [anna, anna, b"{}"], [anna, {"user": "ben", "at": 60_000}])
    assert [{row["user"]: row["hits"] for row in rows} for rows in batches] == [
        {"anna": 2},
        {"anna": 3, "ben": 1},
    ]
    narrow = replace(counts, format=Avro(schema(user=MAYBE, hits=TEXT)))
    with pytest.raises(DeclarationError, match="its Avro schema has 'user string, hits string"):
        run_batches(replace(counting, outputs=(narrow,)), [anna])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            tier(RAW, replace(HITS, columns="id string, at bigint")),
            "its Avro schema has 'id string, user string",
        ),
        (
            tier(RAW, HITS, transform=lambda raw: raw.drop("user")),
            "user as string, but the transform does not",
        ),
        (
            tier(RAW, HITS, transform=lambda raw: raw.withColumn("at", F.lit(1))),
            "the transform returns it as int",
        ),
    ],
)
def test_a_tier_that_does_not_fit_its_schema_is_refused(made: Tier, message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        run(made, [])
    assert message in str(refused.value)


def test_a_record_of_another_schema_is_read_through_the_registry(schemas: Registry) -> None:
    def register(text: str) -> int:
        return schemas.register("raw-value", text)

    newer = register(schema(id=TEXT, user=MAYBE, extra=MAYBE))
    other = schemas.register("other-value", schema(name=TEXT))
    as_json = schemas.ask("/subjects/json-value/versions", {"schema": JSON_SCHEMA, "schemaType": "JSON"})[
        "id"
    ]
    declared = Pipeline(
        (tier(Stream("raw", format=Avro(schema(id=TEXT, user=MAYBE))), Stream("o", "id string")),)
    )
    (bound,) = with_ids(declared, {}, schemas.address).tiers
    records = [
        header(newer) + b"\x02a" + b"\x02\x08anna" + b"\x00",
        header(other) + b"\x02a",
        header(as_json) + b"\x02a",
        header(20_000) + b"\x02a",
    ]
    result = run(bound, records)
    assert [(row["id"], row["user"]) for row in result.rows] == [("a", "anna")]
    reasons = [row["reason"] for row in result.quarantined]
    assert "cannot be read with the stream's published Avro schema" in reasons[0]
    assert "missing required field id" in reasons[0]
    assert reasons[1] == f"the schema id {as_json} is JSON, not AVRO"
    assert reasons[2] == f"the schema registry {schemas.address} has no schema with the id 20000"

    # while the registry hangs, a record of an unknown schema waits; one of a known schema does not
    newest = register(schema(id=TEXT, user=MAYBE, more=LONG | {"default": 0}))
    schemas.process.send_signal(signal.SIGSTOP)
    answers = threading.Timer(8, schemas.process.send_signal, (signal.SIGCONT,))
    try:
        assert len(run(bound, records[:1]).rows) == 1
        answers.start()
        begun = time.monotonic()
        assert [row["id"] for row in run(bound, [header(newest) + b"\x02b\x00\x00"]).rows] == ["b"]
        assert time.monotonic() - begun > 6, "the record waited for the registry"
    finally:
        answers.cancel()
        schemas.process.send_signal(signal.SIGCONT)


def test_a_record_of_a_test_must_fit_the_schema() -> None:
    with pytest.raises(DeclarationError, match="does not fit the stream's Avro schema"):
        run(tier(RAW, HITS), [{"user": "anna"}])
    with pytest.raises(DeclarationError, match='"raw" has no column name'):
        run(tier(RAW, HITS), [{"name": "anna"}])
