"""The audit of a tier that leaves records out: neither a record that was left out twice nor an
offset without a record hides a lost record.

The broker is librdkafka's mock broker in this process.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from sluice.api.declarations import Stream, Tier
from sluice.audit.book import Line, Page
from sluice.audit.table_audit import Entry, TableAudit
from sluice.kafka.reader import Streams
from sluice.sinks.table import Once
from sluice_ops.model.tier import Kind

PLACE = "out/0"
ORIGINS = ("0:0", "0:1", "0:1", "0:2", "0:1", "0:3")
TIER = Tier(
    "load",
    Kind.OUTBOUND,
    (Stream("out", "id string"),),
    lambda out: out,
    sink=Once("loaded", {"id": "text"}),
    filters=True,
)


@pytest.fixture
def streams() -> Iterator[Streams]:
    """Return a stream of one partition with a record for each of `ORIGINS`."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    for offset, origin in enumerate(ORIGINS):
        headers = {"from": f"in/0:{offset}", "by": "load/1", "t0": "1", "origin": origin}
        lineage = [(key, value.encode()) for key, value in headers.items()]
        producer.produce("out", b"x", partition=0, headers=lineage)
    producer.flush(10)
    with closing(Streams(f"{broker.host}:{broker.port}")) as opened:
        opened._counts["out"] = 1  # the mock broker creates four partitions; the test uses one
        yield opened


def lost(streams: Streams, absent: Sequence[str], filtered: int, empty: int = 0) -> list[tuple[int, str]]:
    """Return the losses after a batch of all records, and of `empty` offsets that hold none.

    `absent` has no row in the table.
    """
    page = Page({PLACE: Line(0)})
    audit = TableAudit(TIER, streams, SimpleNamespace(load=lambda _tier: page))  # type: ignore[arg-type]
    audit._absent = lambda origins, _: set(origins) & set(absent)  # type: ignore[method-assign, assignment]
    count = len(ORIGINS) + empty
    batch = Entry(1, {PLACE: 0}, {PLACE: count}, count, count - filtered, filtered, 0, 0.0)
    return [(missing.records, missing.place) for missing in audit._compare_with_tables([batch])]


def test_a_record_that_was_left_out_several_times_is_not_lost(streams: Streams) -> None:
    assert lost(streams, ["0:1"], filtered=3) == []


def test_a_record_that_was_left_out_several_times_hides_no_lost_record(streams: Streams) -> None:
    assert lost(streams, ["0:1", "0:3"], filtered=3) == [(1, "out/0:1")]


def test_a_lost_record_that_came_several_times_is_one_lost_record(streams: Streams) -> None:
    assert lost(streams, ["0:1"], filtered=0) == [(1, "out/0:1")]


def test_an_offset_without_a_record_hides_no_lost_record(streams: Streams) -> None:
    assert lost(streams, ["0:1"], filtered=4, empty=1) == []
    assert lost(streams, ["0:1", "0:3"], filtered=4, empty=1) == [(1, "out/0:1")]
