"""Where a replay's records go: where the tier's own would, under the same names, so that whoever has one drops it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, Message, Producer

from ops.brokers import brokers
from pipeline import lineage
from pipeline.declare import QUARANTINE, Tier
from pipeline.driver.into_sink import sink_rows
from pipeline.replay.book import Book, BrokenOffError, Replay
from pipeline.sinks.ledger import Counts, Ledger
from pipeline.sinks.quarantine import Quarantine

SECONDS = 20.0
"""How long Kafka may take to take records."""
SLICE_SECONDS = 0.02
"""What goes into a stream is spread evenly: so long at most it comes all at once."""


@dataclass(frozen=True)
class Part:
    """What the tier has made of some records."""

    rows: pa.Table
    records: int
    """How many records they are made of."""
    after: Replay
    """The replay once it is put."""


class Target(Protocol):
    """Takes part after part; records that are in quarantine already are left there."""

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Put a part, no faster than `rate`, and remember that."""

    def close(self) -> None:
        """Give back what is held."""


class IntoSink:
    """Each part is a batch of the tier's own ledger, in one transaction with how far the replay is."""

    def __init__(self, ledger: Ledger, quarantine: Quarantine, book: Book, bad: frozenset[str]) -> None:
        """Prepare; nothing is opened yet."""
        self._ledger, self._quarantine, self._book = ledger, quarantine, book
        self._bad = pa.array(sorted(bad), pa.string())

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Write it at once: it is small."""
        del rate
        known = pc.is_in(part.rows.column(lineage.FROM), self._bad)
        good, new = self._quarantine.split(part.rows.filter(pc.invert(known)))
        self._quarantine.put(new)
        aside = len(new) + int(pc.sum(known).as_py() or 0)
        found, _ = sink_rows(good)
        self._ledger.replay(
            part.records,
            found,
            number=part.after.number,
            quarantined=aside,
            save=lambda cursor, counts: self._book.save(part.after, counts, cursor),
        )

    def close(self) -> None:
        """Give the connection back."""
        self._ledger.close()


class IntoStreams:
    """Each part is put at the replay's pace, and then remembered: what a crash in between puts twice is dropped further on."""

    def __init__(self, kafka: str, book: Book, bad: frozenset[str]) -> None:
        """Connect."""
        settings = {"acks": "all", "enable.idempotence": True, "message.max.bytes": 4 * 1024 * 1024, "linger.ms": 5, "log_level": 2}
        self._producer = Producer({**brokers(kafka).client, **settings})
        self._book, self._bad = book, bad
        self._failed: list[str] = []

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Put it record by record, evenly."""
        put, aside = 0, 0
        due, before = 0.0, time.monotonic()
        for row in part.rows.to_pylist():
            headers = {entry["key"]: entry["value"] for entry in row["headers"]}
            if headers["from"].decode() in self._bad:
                aside += 1
                continue
            while due < 1:
                time.sleep(SLICE_SECONDS)
                now = time.monotonic()
                due, before = due + rate() * (now - before), now
            due -= 1
            if part.after.quarantined:  # it arrives now
                headers["t0"] = str(int(time.time() * 1000)).encode()
            self._produce(row, list(headers.items()))
            put, aside = (put, aside + 1) if row["topic"].endswith(QUARANTINE) else (put + 1, aside)
        left = self._producer.flush(SECONDS)
        if left or self._failed:
            why = f" ({self._failed[0]})" if self._failed else ""
            lacks = f"Kafka has not taken {left + len(self._failed)} records{why}"
            message = f"{lacks}; go on with `sluice replay --resume {part.after.number}`"
            raise BrokenOffError(message)
        rows_in = max(part.records, put + aside)
        self._book.save(part.after, Counts(rows_in, put, rows_in - put - aside, aside, 0, 0, 0, put))

    def close(self) -> None:
        """Nothing is left to be put: each part is waited for."""

    def _produce(self, row: dict[str, Any], headers: list[tuple[str, bytes]]) -> None:
        self._producer.produce(
            row["topic"], key=row["key"], value=row["value"], partition=row["partition"], headers=headers, on_delivery=self._taken
        )
        self._producer.poll(0)

    def _taken(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))


def into(  # noqa: PLR0913, PLR0917 — what one replay is
    kafka: str, postgres: str, tier: Tier, replay: Replay, book: Book, bad: frozenset[str]
) -> Target:
    """Return what writes where the tier writes; `bad` are the places of records that are in quarantine."""
    if tier.sink is None:
        return IntoStreams(kafka, book, bad)
    ledger = Ledger(postgres, tier.name, replay.incarnation, tier.sink)
    return IntoSink(ledger, Quarantine(kafka, replay.by, replay.incarnation), book, bad)
