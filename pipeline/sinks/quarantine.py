"""Bad records of a batch tier: set aside before its table is written, and put into the quarantine stream with their lineage."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, Message, Producer

from ops.brokers import brokers
from pipeline import lineage
from pipeline.declare import QUARANTINE

FLUSH_SECONDS = 20.0


class QuarantineError(Exception):
    """Kafka has not taken the bad records; the batch must not be committed."""


class Quarantine:
    """Writes the bad records of one incarnation."""

    def __init__(self, kafka: str, tier: str, incarnation: int) -> None:
        """Prepare; a producer is made when the first bad record comes."""
        self._kafka = kafka
        self._by = f"{tier}/{incarnation}"
        self._producer: Producer | None = None
        self._counts: dict[str, int] = {}

    def split(self, rows: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Return the good rows without the columns of the platform, and the bad ones as they came in."""
        bad = pc.is_valid(rows.column(lineage.REASON))
        good = rows.filter(pc.invert(bad)).drop_columns([lineage.REASON, lineage.COLUMN])
        return good, rows.filter(bad).select([lineage.REASON, lineage.COLUMN]).to_pylist()

    def put(self, bad: list[dict[str, Any]]) -> None:
        """Write them; return when Kafka has them."""
        if not bad:
            return
        if self._producer is None:
            self._producer = Producer(
                {**brokers(self._kafka).client, "acks": "all", "enable.idempotence": True, "message.max.bytes": 4 * 1024 * 1024}
            )
        refused: list[str] = []

        def heard(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error.str())

        for row in bad:
            came = row[lineage.COLUMN]
            stream = came["stream"] + QUARANTINE
            headers = {
                "origin": came["origin"],
                "path": came["path"],
                "from": came["from"],
                "by": self._by,
                "t0": came["t0"],
                "reason": row[lineage.REASON],
            }
            self._producer.produce(
                stream,
                key=came["key"],
                value=came["value"],
                partition=came["partition"] % self._partitions(self._producer, stream),
                headers={key: str(value).encode() for key, value in headers.items()},
                on_delivery=heard,
            )
        left = self._producer.flush(FLUSH_SECONDS)
        if left or refused:
            why = f": {refused[0]}" if refused else f" within {FLUSH_SECONDS:.0f} s"
            count = left + len(refused)
            message = f"Kafka at {self._kafka} has not taken {count} bad records{why}; their batch is not written without them"
            raise QuarantineError(message)

    def _partitions(self, producer: Producer, stream: str) -> int:
        """Return how many a stream has: its records' own stream may have been given more since."""
        if stream not in self._counts:
            found = producer.list_topics(stream, timeout=FLUSH_SECONDS).topics[stream]
            if not found.partitions:
                message = f'stream "{stream}" is not in Kafka at {self._kafka}; run `python -m pipeline.publish`'
                raise QuarantineError(message)
            self._counts[stream] = len(found.partitions)
        return self._counts[stream]
