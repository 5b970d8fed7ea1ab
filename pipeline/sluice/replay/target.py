"""Where a replay's records go: where the tier's own would, under the same names, so that whoever has one drops it."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

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
"""What goes into a stream is spread evenly: so long at most it comes all at once."""


@dataclass(frozen=True)
class Part:
    """What the tier has made of some records."""

    rows: pa.Table
    records: int
    """How many records they are made of."""
    after: Replay
    """The replay once it is put."""
    again: Callable[[Sequence[str]], pa.Table]
    """Makes the rows again, those from some places with all of their lineage."""


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
        known = pc.is_in(part.rows.column(lineage.FROM), self._bad)
        good, new = self._quarantine.split(part.rows.filter(pc.invert(known)))
        aside = len(new) + int(pc.sum(known).as_py() or 0)
        found, _ = sink_rows(good)

        def save(cursor: "psycopg.Cursor[Any]", counts: Counts) -> None:
            self._quarantine.put(new)  # only now: what is refused would be put there again with each try
            self._book.save(part.after, counts, cursor)

        try:
            self._ledger.replay(part.records, found, number=part.after.number, quarantined=aside, save=save)
        except REFUSED:
            self.put(replace(part, rows=without_refused(self._ledger, good, found, part.again)), rate)

    def close(self) -> None:
        """Give the connection back."""
        self._ledger.close()


class IntoStreams:
    """Each part is put at the replay's pace, and then remembered: what a crash in between puts twice is dropped further on."""

    def __init__(self, kafka: str, book: Book, bad: frozenset[str]) -> None:
        """Connect."""
        self._producer, self._book, self._bad = producer.producer(kafka), book, bad

    def put(self, part: Part, rate: Callable[[], float]) -> None:
        """Put it record by record, evenly."""
        records = [
            record
            for row in part.rows.to_pylist()
            if (record := _record(row)).headers["from"].decode() not in self._bad
        ]
        put = sum(not record.stream.endswith(QUARANTINE) for record in records)
        aside = len(part.rows) - put
        paced = _evenly(records, rate)
        lacking = producer.put(self._producer, map(_arriving, paced) if part.after.quarantined else paced)
        if lacking is not None:
            lacks = f"Kafka has not taken {lacking.records} records ({lacking.why})"
            message = f"{lacks}; go on with `sluice replay --resume {part.after.number}`"
            raise BrokenOffError(message)
        rows_in = max(part.records, put + aside)
        self._book.save(part.after, Counts(rows_in, put, rows_in - put - aside, aside, 0, 0, 0, put))

    def close(self) -> None:
        """Nothing is left to be put: each part is waited for."""


def _record(row: dict[str, Any]) -> producer.Record:
    headers = {entry["key"]: entry["value"] for entry in row["headers"]}
    return producer.Record(row["topic"], row["partition"], row["key"], row["value"], headers)


def _arriving(record: producer.Record) -> producer.Record:
    """Have it arrive in the pipeline now."""
    return record._replace(headers=record.headers | {"t0": str(int(time.time() * 1000)).encode()})


def _evenly(records: Iterable[producer.Record], rate: Callable[[], float]) -> Iterator[producer.Record]:
    """Yield each record when it is due, so many in a second."""
    due, before = 0.0, time.monotonic()
    for record in records:
        while due < 1:
            time.sleep(SLICE_SECONDS)
            now = time.monotonic()
            due, before = due + rate() * (now - before), now
        due -= 1
        yield record


def into(  # noqa: PLR0913, PLR0917 — what one replay is
    kafka: str, postgres: str, tier: Tier, replay: Replay, book: Book, bad: frozenset[str]
) -> Target:
    """Return what writes where the tier writes; `bad` are the places of records that are in quarantine."""
    if tier.sink is None:
        return IntoStreams(kafka, book, bad)
    ledger = Ledger(postgres, tier.name, replay.incarnation, tier.sink)
    return IntoSink(ledger, Quarantine(kafka, replay.by, replay.incarnation), book, bad)
