"""Bad records of a batch tier: set aside before its table is written, and put into the quarantine stream with their lineage."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from sluice.api.declarations import QUARANTINE
from sluice.kafka import producer as putting
from sluice.records import lineage


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
            self._producer = putting.producer(self._kafka)
        lacking = putting.put(self._producer, [self._record(row, self._producer) for row in bad])
        if lacking is not None:
            lacks = f"Kafka at {self._kafka} has not taken {lacking.records} bad records: {lacking.why}"
            message = f"{lacks}; their batch is not written without them"
            raise QuarantineError(message)

    def _record(self, row: dict[str, Any], producer: Producer) -> putting.Record:
        came = row[lineage.COLUMN]
        stream = came["stream"] + QUARANTINE
        said = {name: came[name] for name in ("origin", "path", "from", "t0")} | {
            "by": self._by,
            "reason": row[lineage.REASON],
        }
        headers = {name: str(value).encode() for name, value in said.items()}
        return putting.Record(
            stream,
            came["partition"] % self._partitions(producer, stream),
            came["key"],
            came["value"],
            headers,
        )

    def _partitions(self, producer: Producer, stream: str) -> int:
        """Return how many a stream has: its records' own stream may have been given more since."""
        if stream not in self._counts:
            found = producer.list_topics(stream, timeout=putting.SECONDS).topics[stream]
            if not found.partitions:
                message = f'stream "{stream}" is not in Kafka at {self._kafka}; run `python -m sluice.commands.publish`'
                raise QuarantineError(message)
            self._counts[stream] = len(found.partitions)
        return self._counts[stream]
