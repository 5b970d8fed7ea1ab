"""Writes records into streams from Python, beside Spark.

Tiers with a sink write bad records this way, and a replay writes its output. Sources and sinks
write in transactions.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from sluice_ops.site.brokers import brokers

SECONDS = 20.0
"""The longest wait for Kafka to take the records."""
MAX_BYTES = 4 * 1024 * 1024
"""The producer's own limit. Unit: bytes.

It is above the limit of every stream, so that Kafka itself refuses a record that is too large.
"""


class Record(NamedTuple):
    """One record, with its stream and partition."""

    stream: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class NotAccepted(NamedTuple):
    """How many records Kafka did not take, and why."""

    records: int
    why: str


class TransactionalProducer(Producer):  # type: ignore[misc]  # confluent_kafka has no types
    """A producer that may be fenced, and is dropped with nothing in flight.

    librdkafka 2.16 frees the text of a fatal error twice, and the process dies, if Kafka answers a
    fenced producer while it is dropped (decision 93).
    """

    def put(self, stream: str, key: bytes | None, value: bytes | None, **details: Any) -> None:
        """Produce a record; wait while the queue is full. `details` are those of `produce`."""
        while True:
            try:
                self.produce(stream, key=key, value=value, **details)
            except BufferError:
                self.poll(0.1)
            else:
                self.poll(0)
                return

    def __del__(self) -> None:
        """Forget the records in flight, so that no answer counts any more."""
        with suppress(RuntimeError):  # the settings were refused: there is no producer
            self.purge()
            until = time.monotonic() + SECONDS
            while len(self) and time.monotonic() < until:
                self.poll(0.1)


def producer(kafka: str) -> Producer:
    """Return a producer that writes each record once, in order, and to all in-sync replicas."""
    settings = {"acks": "all", "enable.idempotence": True, "message.max.bytes": MAX_BYTES, "log_level": 2}
    return Producer({**brokers(kafka).client, **settings})


def put(by: Producer, records: Iterable[Record]) -> NotAccepted | None:
    """Write all records, and wait for Kafka; None if Kafka took all of them."""
    refused: list[str] = []

    def record_refusal(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error.str())

    for record in records:
        by.produce(
            record.stream,
            key=record.key,
            value=record.value,
            partition=record.partition,
            headers=list(record.headers.items()),
            on_delivery=record_refusal,
        )
        by.poll(0)
    unacknowledged = by.flush(SECONDS)
    if not unacknowledged and not refused:
        return None
    why = refused[0] if refused else f"not within {SECONDS:.0f} s"
    return NotAccepted(unacknowledged + len(refused), why)
