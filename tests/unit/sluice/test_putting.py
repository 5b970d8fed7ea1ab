"""What Kafka has not taken of what was put: refused, or not answered in time."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sluice.kafka.producer import SECONDS, NotAccepted, Record, put


@dataclass
class Kafka:
    """Plays a producer: what has the value `too large` is refused, what has `away` is never answered."""

    taken: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    waits: list[Any] = field(default_factory=list)

    def produce(self, stream: str, *, on_delivery: Any, **record: Any) -> None:
        if record["value"] == b"away":
            self.waits.append(record)
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
        return len(self.waits)


def record(value: bytes) -> Record:
    return Record("hits.quarantine", 2, None, value, {"from": b"hits/2:1"})


def test_a_record_goes_where_it_is_to_go_with_its_headers() -> None:
    kafka = Kafka()
    assert put(kafka, [record(b"x")]) is None
    assert kafka.taken == [
        ("hits.quarantine", {"key": None, "value": b"x", "partition": 2, "headers": [("from", b"hits/2:1")]})
    ]


@pytest.mark.parametrize(
    ("values", "count", "why"),
    [
        ([b"x", b"too large", b"too large"], 2, "Broker: Message size too large"),
        ([b"away", b"x"], 1, "not within 20 s"),
        ([b"away", b"too large"], 2, "Broker: Message size too large"),
    ],
)
def test_what_is_lacking_is_counted_and_said(values: list[bytes], count: int, why: str) -> None:
    kafka = Kafka()
    assert put(kafka, map(record, values)) == NotAccepted(count, why)


def test_what_one_batch_lacked_is_not_told_of_the_next() -> None:
    kafka = Kafka()
    assert put(kafka, [record(b"too large")]) is not None
    assert put(kafka, [record(b"x")]) is None
