"""Records that Kafka does not accept: refused, or not acknowledged in time."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sluice.kafka.producer import SECONDS, NotAccepted, Record, put


@dataclass
class Kafka:
    """A producer that refuses records with the value `too large`, and never acknowledges records
    with the value `away`.
    """

    taken: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    unacknowledged: list[Any] = field(default_factory=list)

    def produce(self, stream: str, *, on_delivery: Any, **record: Any) -> None:
        if record["value"] == b"away":
            self.unacknowledged.append(record)
        elif record["value"] == b"too large":
            on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        else:
            self.taken.append((stream, record))
            on_delivery(None, None)

    def poll(self, timeout: float) -> int:
        assert timeout == 0
        return 0

    def flush(self, timeout: float) -> int:
        assert timeout == SECONDS
        return len(self.unacknowledged)


def record(value: bytes) -> Record:
    return Record("hits.quarantine", 2, None, value, {"from": b"hits/2:1"})


def test_a_record_goes_to_its_partition_with_its_headers() -> None:
    kafka = Kafka()
    assert put(kafka, [record(b"x")]) is None
    assert kafka.taken == [
        ("hits.quarantine", {"key": None, "value": b"x", "partition": 2, "headers": [("from", b"hits/2:1")]})
    ]


@pytest.mark.parametrize(
    ("values", "count", "reason"),
    [
        ([b"x", b"too large", b"too large"], 2, "Broker: Message size too large"),
        ([b"away", b"x"], 1, "not within 20 s"),
        ([b"away", b"too large"], 2, "Broker: Message size too large"),
    ],
)
def test_records_that_are_not_accepted_are_counted_with_a_reason(
    values: list[bytes], count: int, reason: str
) -> None:
    kafka = Kafka()
    assert put(kafka, map(record, values)) == NotAccepted(count, reason)


def test_failures_of_one_batch_do_not_count_for_the_next() -> None:
    kafka = Kafka()
    assert put(kafka, [record(b"too large")]) is not None
    assert put(kafka, [record(b"x")]) is None
