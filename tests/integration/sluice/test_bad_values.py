"""Values that a service or a type does not accept: the record is quarantined, or the value is
harmless; no tier stops.
"""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sluice.api import declarations
from sluice.api.declarations import State, Stream, Tier
from sluice.api.sink import Sink
from sluice.records import lineage
from sluice.records.routing import outgoing
from sluice.records.state_inputs import _timely
from sluice.sinks.http import Post
from sluice.sinks.table import Once, Totals
from sluice_ops.model.tier import Kind, Mode

pytestmark = pytest.mark.timeout(240)

NOW = datetime.now(UTC)
KAFKA = (
    "topic string, partition int, offset bigint, key binary, value binary, timestamp timestamp,"
    " headers array<struct<key string, value binary>>"
)
GOOD = {"id": "a", "user": "u", "ad": "ad-1", "kind": "view", "at": int(time.time() * 1000)}
NUL = "a\0b"


def records(
    session: SparkSession, *values: Any, stream: str = "raw", headers: list[tuple[str, bytes]] | None = None
) -> DataFrame:
    rows = [
        (stream, 0, number, None, json.dumps(value).encode(), NOW, headers)
        for number, value in enumerate(values)
    ]
    return session.createDataFrame(rows, KAFKA)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"at": -1}, "at is before 1970"),
        ({"at": -(2**63)}, "at is before 1970"),
        ({"kind": None, "x, kind: STRING,": 1}, "wrong type: kind must be text"),
    ],
)
def test_entry_passes_no_value_that_later_tiers_cannot_use(
    session: SparkSession, changed: dict[str, Any], reason: str
) -> None:
    pipeline = declarations.load("hits")
    checked = lineage.transformed(records(session, {**GOOD, **changed}, GOOD), pipeline.tier("entry"))
    assert [row.reason for row in checked.orderBy("lineage.from").collect()] == [reason, None]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_times_that_python_cannot_represent_are_quarantined(session: SparkSession, kind: str) -> None:
    tier = Tier(
        "mine",
        Kind.OUTBOUND,
        (Stream("hits", "at bigint"),),
        lambda hits: hits,
        sink=Once("rows", {"at": "timestamptz"}),
    )
    input_rows = records(
        session,
        *({"at": at} for at in (-62135596800, -62135596801, 253402300799, 253402300800, None)),
        stream="hits",
    )
    with_time = lineage.transformed(input_rows, tier).withColumn("at", F.timestamp_seconds("at").cast(kind))
    reasons = lineage.collected(with_time, tier).orderBy(lineage.FROM).select(lineage.REASON).collect()
    assert [row.reason for row in reasons] == [None, *["at is before the year 1 or after 9999", None] * 2]


def into(sink: Sink) -> Tier:
    return Tier("mine", Kind.OUTBOUND, (Stream("hits", "id string, n bigint"),), lambda hits: hits, sink=sink)


COLUMNS = {"id": "text", "n": "bigint"}
LONG = "x" * 3000


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (
            Once("rows", COLUMNS),
            {
                NUL: "id contains the character NUL, which PostgreSQL does not allow in texts",
                None: None,
                LONG: None,
            },
        ),
        (
            Post("crm", COLUMNS, "http://127.0.0.1:1"),
            {
                NUL: "id contains the character NUL, which PostgreSQL does not allow in texts",
                None: None,
                LONG: None,
            },
        ),
        (
            Totals("sums", COLUMNS, key=("id",)),
            {
                NUL: "id contains the character NUL, which PostgreSQL does not allow in texts",
                None: "id is null, but is part of the key of sums",
                LONG: "id: the key is too long; the limit is 2600 bytes",
            },
        ),
    ],
)
def test_values_that_postgresql_would_refuse_are_quarantined(
    session: SparkSession, sink: Sink, expected: dict[str | None, str | None]
) -> None:
    tier = into(sink)
    input_rows = records(
        session, *({"id": name, "n": 1} for name in (NUL, None, LONG, "fine")), stream="hits"
    )
    checked = lineage.collected(lineage.transformed(input_rows, tier), tier)
    assert {row.id: row.reason for row in checked.collect()} == {**expected, "fine": None}


def test_times_keep_their_microseconds_from_tier_to_tier(session: SparkSession) -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 123456)  # noqa: DTZ001 - the value without a zone
    out = Stream("out", "at timestamp, local timestamp_ntz")
    first = Tier(
        "mine",
        Kind.PROCESSING,
        (Stream("hits", "n bigint"),),
        lambda hits: hits,
        outputs=(out,),
        mode=Mode.REALTIME,
    )
    times = (
        F.lit("2026-03-01 12:00:00.123456Z").cast("timestamp").alias("at"),
        F.lit(moment).cast("timestamp_ntz").alias("local"),
    )
    incoming = lineage.incoming(records(session, {"n": 1}, stream="hits"), first).select(*times, "lineage")
    written = outgoing(incoming, first, "mine/1", {"out": 1, "hits.quarantine": 1})
    second = replace(first, inputs=(out,), outputs=(Stream("end"),))
    positions = F.lit(0).cast("bigint").alias("offset"), F.lit(NOW).alias("timestamp")
    consumed = written.select("topic", "partition", *positions, "key", "value", "headers")
    row = lineage.incoming(consumed, second).select(F.unix_micros("at").alias("micros"), "local").collect()[0]
    assert row.micros % 1_000_000 == 123456
    assert row.local == moment


@pytest.mark.parametrize(
    ("kind", "values", "accepted"),
    [
        ("bigint", (-(2**63), 0, 2**63 - 1, None, GOOD["at"]), {2**63 - 1, None, GOOD["at"]}),
        ("string", ("soon", "1e400", "NaN", "-1"), {"soon", "1e400", "NaN"}),
    ],
)
def test_an_invalid_time_does_not_stop_a_tier_with_state(
    session: SparkSession, tmp_path: Path, kind: str, values: tuple[Any, ...], accepted: set[Any]
) -> None:
    """A record with an invalid time is late, or has its time of arrival."""
    stream = Stream("hits", f"at {kind}")
    tier = Tier("mine", Kind.PROCESSING, (stream,), lambda hits: hits)
    frame = records(session, *({"at": at} for at in values), stream="hits")
    frame.write.parquet(str(tmp_path / "in"))
    session.conf.set("spark.sql.shuffle.partitions", "1")
    read = session.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    writer = (
        _timely(read, stream, tier, State(lateness=60, time="at"))
        .writeStream.format("memory")
        .queryName(f"taken_{kind}")
    )
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination(120)
    assert {row.at for row in session.table(f"taken_{kind}").collect()} == accepted


def test_a_forged_header_does_not_set_the_origin(session: SparkSession) -> None:
    raw = Tier("mine", Kind.ENTRY, (Stream("raw"),), lambda hits: hits, outputs=(Stream("out"),))

    def name(again: bytes) -> tuple[str, str]:
        input_rows = records(session, GOOD, headers=[("again", again), ("path", b"9/9")])
        row = lineage.incoming(input_rows, raw).select("lineage.origin", "lineage.path").collect()[0]
        return row.origin, row.path

    for again in (b"", b"x", b"2:17", b"-1:3"):
        assert name(again) == ("0:0", "0")
