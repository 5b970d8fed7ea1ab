"""The target of a replay: the tier's own sink or streams.

Records keep their origins, so a reader that has a record already drops the replay.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sluice.api import lineage_header
from sluice.api.declarations import QUARANTINE, Tier
from sluice.driver.engine.sink_rows import sink_rows
from sluice.kafka import producer
from sluice.records import lineage
from sluice.replay.book import Book, BrokenOffError, Replay
from sluice.sinks.ledger import Counts, Ledger
from sluice.sinks.quarantine import Quarantine
from sluice.sinks.refused import REFUSED, without_refused

if TYPE_CHECKING:
    import psycopg

SLICE_SECONDS = 0.02
"""Records into a stream are spread evenly; the records of one such slice are written at once."""


@dataclass(frozen=True)
class Part:
    """The rows that the tier made of some records."""

    rows: pa.Table
    records: int
    """The number of input records."""
    after: Replay
    """The replay with the progress after this part."""
    again: Callable[[Sequence[str]], pa.Table]
    """Returns the rows again; rows from the given places keep their whole lineage."""


class Target(Protocol):
    """Writes part after part, without the records that are in quarantine already."""

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Write a part, at most at `rate` (records per second), and save the progress."""

    def close(self) -> None:
        """Close all connections."""


class IntoSink:
    """Writes each part as a batch of the tier's ledger, in one transaction with the progress."""

    def __init__(
        self, ledger: Ledger, quarantine: Quarantine, book: Book, quarantined: frozenset[str]
    ) -> None:
        """Keep the places of records that are in quarantine."""
        self._ledger, self._quarantine, self._book = ledger, quarantine, book
        self._quarantined = pa.array(sorted(quarantined), pa.string())

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Write the part at once, since a part is small."""
        known = pc.is_in(part.rows.column(lineage.FROM), self._quarantined)
        good, bad = self._quarantine.split(part.rows.filter(pc.invert(known)))
        quarantined = len(bad) + int(pc.sum(known).as_py() or 0)
        rows, _ = sink_rows(good)

        def save(cursor: "psycopg.Cursor[Any]", counts: Counts) -> None:
            # not earlier: each retry after a refusal would put the bad rows into quarantine again
            self._quarantine.put(bad)
            self._book.save(part.after, counts, cursor)

        try:
            self._ledger.replay(
                part.records, rows, number=part.after.number, quarantined=quarantined, save=save
            )
        except REFUSED:
            self.put(
                replace(part, rows=without_refused(self._ledger.refused(rows), good, rows, part.again)), rate
            )

    def close(self) -> None:
        self._ledger.close()


class IntoStreams:
    """Writes each part at the replay's pace, and then saves the progress.

    A crash in between writes the part twice; later tiers drop the duplicates.
    """

    def __init__(self, kafka: str, book: Book, quarantined: frozenset[str]) -> None:
        """Connect, and keep the places of records that are in quarantine."""
        self._producer, self._book, self._quarantined = producer.producer(kafka), book, quarantined

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Write the part record by record, evenly; BrokenOffError if Kafka does not take all."""
        records = [
            record
            for row in part.rows.to_pylist()
            if lineage_header.texts((record := _record(row)).headers.items())["from"] not in self._quarantined
        ]
        written = sum(not record.stream.endswith(QUARANTINE) for record in records)
        quarantined = len(part.rows) - written
        paced = _evenly(records, rate)
        lacking = producer.put(self._producer, map(_arriving, paced) if part.after.quarantined else paced)
        if lacking is not None:
            message = (
                f"Kafka did not take {lacking.records} records ({lacking.why}), so the replay stopped; "
                f"continue with `sluice replay --resume {part.after.number}`"
            )
            raise BrokenOffError(message)
        rows_in = max(part.records, written + quarantined)
        filtered = rows_in - written - quarantined
        self._book.save(part.after, Counts(rows_in, written, filtered, quarantined, 0, 0, 0, written))

    def close(self) -> None:
        """Do nothing: `put` waits for all records."""


def _record(row: dict[str, Any]) -> producer.Record:
    headers = {entry["key"]: entry["value"] for entry in row["headers"]}
    return producer.Record(row["topic"], row["partition"], row["key"], row["value"], headers)


def _arriving(record: producer.Record) -> producer.Record:
    """Return the record with the current time as its arrival."""
    return record._replace(headers=lineage_header.arriving(record.headers, int(time.time() * 1000)))


def _evenly(records: Iterable[producer.Record], rate: Callable[[], float]) -> Iterator[producer.Record]:
    """Yield each record when it is due at this rate (records per second)."""
    due, before = 0.0, time.monotonic()
    for record in records:
        while due < 1:
            time.sleep(SLICE_SECONDS)
            now = time.monotonic()
            due, before = due + rate() * (now - before), now
        due -= 1
        yield record


def target_of(  # noqa: PLR0913, PLR0917 — the parts of one replay
    kafka: str,
    postgres: str,
    tier: Tier,
    replay: Replay,
    book: Book,
    quarantined: frozenset[str],
    *,
    packed: bool,
) -> Target:
    """Return the target of a replay; `quarantined` are the places of records in quarantine.

    `packed` as in `sluice.api.lineage_header`.
    """
    if tier.sink is None:
        return IntoStreams(kafka, book, quarantined)
    ledger = Ledger(postgres, tier.name, replay.incarnation, tier.sink)
    quarantine = Quarantine(kafka, replay.by, replay.incarnation, packed=packed)
    return IntoSink(ledger, quarantine, book, quarantined)
