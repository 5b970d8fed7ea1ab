"""The quarantine of a batch tier: bad records go into the quarantine stream, with their lineage.

They are removed from the batch before the tier writes its table.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from sluice.api import lineage_header
from sluice.api.declarations import QUARANTINE
from sluice.kafka import producer as kafka_producer
from sluice.records import lineage


class QuarantineError(Exception):
    """Kafka did not accept the bad records, so the batch must not be committed."""


class Quarantine:
    """Writes the bad records of one incarnation."""

    def __init__(self, kafka: str, tier: str, incarnation: int, *, packed: bool = True) -> None:
        """Connect later; `packed` as in `sluice.api.lineage_header`."""
        self._packed = packed
        self._kafka = kafka
        self._by = f"{tier}/{incarnation}"
        self._producer: Producer | None = None
        self._counts: dict[str, int] = {}

    def split(self, rows: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
        """Return the good rows without the platform's columns, and the bad ones with reasons."""
        bad = pc.is_valid(rows.column(lineage.REASON))
        good = rows.filter(pc.invert(bad)).drop_columns([lineage.REASON, lineage.COLUMN])
        return good, rows.filter(bad).select([lineage.REASON, lineage.COLUMN]).to_pylist()

    def put(self, bad: list[dict[str, Any]]) -> None:
        """Write the records, and return when Kafka has them.

        QuarantineError if Kafka refuses one.
        """
        if not bad:
            return
        if self._producer is None:
            self._producer = kafka_producer.producer(self._kafka)
        lacking = kafka_producer.put(self._producer, [self._record(row, self._producer) for row in bad])
        if lacking is not None:
            message = (
                f"Kafka at {self._kafka} did not accept {lacking.records} bad records: {lacking.why}; "
                "their batch is not written until Kafka accepts them"
            )
            raise QuarantineError(message)

    def _record(self, row: dict[str, Any], producer: Producer) -> kafka_producer.Record:
        source = row[lineage.COLUMN]
        stream = source["stream"] + QUARANTINE
        words = {name: str(source[name]) for name in ("origin", "path", "from", "t0")} | {"by": self._by}
        reason = {"reason": str(row[lineage.REASON]).encode()}
        headers = lineage_header.headers(words, packed=self._packed) | reason
        return kafka_producer.Record(
            stream,
            source["partition"] % self._partitions(producer, stream),
            source["key"],
            source["value"],
            headers,
        )

    def _partitions(self, producer: Producer, stream: str) -> int:
        """Return the number of partitions of a quarantine stream.

        The record's own stream may have more, if partitions were added to it later.
        """
        if stream not in self._counts:
            topic = producer.list_topics(stream, timeout=kafka_producer.SECONDS).topics[stream]
            if not topic.partitions:
                message = f'stream "{stream}" is not in Kafka at {self._kafka}; run `sluice publish`'
                raise QuarantineError(message)
            self._counts[stream] = len(topic.partitions)
        return self._counts[stream]
