"""Streams that retention has shortened: the remaining records are read.

The broker is librdkafka's mock broker in this process.
"""

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from sluice.api.declarations import Stream, Tier
from sluice.audit.book import Line, Page
from sluice.audit.table_audit import Entry, TableAudit
from sluice.driver.engine.handover_watch import HandoverWatch
from sluice.kafka.reader import Streams
from sluice.sinks.table import Once
from sluice_ops.model.tier import Kind

COUNT = 300
LARGE = 200
"""The number of large records.

The mock broker keeps some megabytes of a partition, so it drops a part of them.
"""
PLACE = "out/0"
TIER = Tier(
    "load", Kind.OUTBOUND, (Stream("out", "id string"),), lambda out: out, sink=Once("loaded", {"id": "text"})
)


class Expired(NamedTuple):
    """A stream of one partition whose oldest records are gone."""

    producer: Producer
    kafka: str
    streams: Streams
    oldest: int

    def put(self, offset: int, size: int = 10, by: str = "load/1") -> None:
        headers = {"from": f"in/0:{offset}", "by": by, "t0": "1", "origin": f"0:{offset}"}
        self.producer.produce(
            "out", b"x" * size, partition=0, headers=[(key, value.encode()) for key, value in headers.items()]
        )
        self.producer.flush(10)


@pytest.fixture
def expired() -> Iterator[Expired]:
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    with closing(Streams(f"{broker.host}:{broker.port}")) as streams:
        streams._counts["out"] = 1  # the mock broker creates four partitions; the test uses one
        shortened = Expired(producer, f"{broker.host}:{broker.port}", streams, 0)
        for offset in range(COUNT):
            shortened.put(offset, 40_000 if offset < LARGE else 10)
        bounds = streams.bounds(["out"])
        assert 0 < bounds.oldest[PLACE] < bounds.ends[PLACE] == COUNT
        yield shortened._replace(oldest=bounds.oldest[PLACE])


@pytest.mark.parametrize("more", [0, 1, 50])
def test_remaining_records_are_read_however_far_back_the_request_goes(expired: Expired, more: int) -> None:
    remaining = list(range(expired.oldest, COUNT))
    assert [
        record.out.offset
        for record in expired.streams.last(["out"], {PLACE: COUNT}, before=len(remaining) + more)
    ] == remaining
    assert expired.streams.times_at({PLACE: expired.oldest - more}).keys() == {PLACE}


def test_positions_after_the_end_of_a_shortened_stream_give_nothing(expired: Expired) -> None:
    assert list(expired.streams.read({("out", 0): COUNT + 5}, {PLACE: COUNT + 9})) == []
    assert expired.streams.times_at({PLACE: COUNT + 5}) == {}


def test_a_handover_is_watched_although_the_last_record_has_expired(expired: Expired) -> None:
    ends = {PLACE: expired.oldest}  # the stream's end when the run began: all earlier records are gone
    handover = HandoverWatch(expired.kafka, ends, "load/1", {"in/0": expired.oldest}, {"in/0": COUNT})
    try:
        for _ in range(100):
            if handover.is_level():
                break
            handover._level.wait(0.1)
        assert handover.is_level(), "the new run has written all records"
    finally:
        handover.stop()
        handover._thread.join(10)


def audit(expired: Expired) -> TableAudit:
    table_audit = TableAudit(
        TIER, expired.streams, SimpleNamespace(load=lambda _tier: Page({PLACE: Line(0)}))
    )  # type: ignore[arg-type]
    table_audit._absent = lambda origins, _table: set(origins) & {"0:250"}  # type: ignore[method-assign]
    return table_audit


@pytest.mark.parametrize("expired_count", [0, 1, 40])
def test_remaining_records_are_audited_and_the_rest_is_declared_unread(
    expired: Expired, expired_count: int
) -> None:
    table_audit, first = audit(expired), expired.oldest - expired_count
    (missing,) = table_audit._compare_with_tables(
        [Entry(1, {PLACE: first}, {PLACE: COUNT}, COUNT - first, COUNT - first, 0, 0, 0.0)]
    )
    assert (missing.records, missing.place) == (1, "out/0:250")
    assert table_audit._page.lines[PLACE].unseen == expired_count
    assert table_audit._compare_with_tables([Entry(2, {PLACE: 0}, {PLACE: 20}, 20, 20, 0, 0, 0.0)]) == [], (
        "expired records are unread, and not lost"
    )
    assert table_audit._page.lines[PLACE].unseen == expired_count + 20
