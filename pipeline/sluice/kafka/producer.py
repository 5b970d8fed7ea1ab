"""Putting records into streams from Python, beside Spark: bad records of tiers with a sink, and what a replay makes."""

from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from sluice_ops.site.brokers import brokers

SECONDS = 20.0
"""How long Kafka may take to take what was put."""
LARGEST = 4 * 1024 * 1024
"""More than any stream takes, which says itself what is too large. Unit: bytes."""


class Record(NamedTuple):
    """One record, and where it goes."""

    stream: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class Lacking(NamedTuple):
    """What Kafka has not taken."""

    records: int
    why: str


def producer(kafka: str) -> Producer:
    """Return one whose records are each there once and in order, on all replicas, when it says so."""
    settings = {"acks": "all", "enable.idempotence": True, "message.max.bytes": LARGEST, "log_level": 2}
    return Producer({**brokers(kafka).client, **settings})


def put(by: Producer, records: Iterable[Record]) -> Lacking | None:
    """Put each record when it comes; return once Kafka has all of them (None), or what it lacks."""
    refused: list[str] = []

    def heard(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for record in records:
        by.produce(
            record.stream,
            key=record.key,
            value=record.value,
            partition=record.partition,
            headers=list(record.headers.items()),
            on_delivery=heard,
        )
        by.poll(0)
    left = by.flush(SECONDS)
    if not left and not refused:
        return None
    return Lacking(left + len(refused), refused[0] if refused else f"not within {SECONDS:.0f} s")
