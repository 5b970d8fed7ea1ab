"""Audits a tier that fills a table: its batches follow on each other, they add up, and what they were given is in the table."""

from dataclasses import dataclass

from psycopg import sql

from pipeline.audit.book import Book, Line
from pipeline.declare import Tier
from pipeline.driver.streams import Streams, split
from pipeline.sinks.table import Once

BATCHES = 30
"""The most of one look, so that a backlog does not become one huge look."""
LEDGER = "ledger"


@dataclass(frozen=True)
class Entry:
    """One batch as the ledger has it."""

    batch: int
    begins: dict[str, int]
    ends: dict[str, int]
    rows_in: int
    rows_out: int
    filtered: int
    quarantined: int

    @property
    def read(self) -> int:
        """How many records it was given."""
        return sum(end - self.begins.get(partition, 0) for partition, end in self.ends.items())


class TableAudit:
    """One tier."""

    def __init__(self, tier: Tier, streams: Streams, book: Book) -> None:
        """Go on from what the book remembers; batches before the first look are not judged."""
        self._tier = tier
        self._streams = streams
        self._book = book
        self._page = book.load(tier.name)

    def look(self) -> list[str]:
        """Judge the batches since the last look, and return a sentence for each new loss."""
        if LEDGER not in self._page.read:
            last = self._book.open().execute("SELECT max(batch) FROM ledger WHERE tier = %s", (self._tier.name,)).fetchone()
            self._page.read[LEDGER] = -1 if last is None or last[0] is None else int(last[0])
        rows = self._book.open().execute(
            "SELECT batch, begins, ends, rows_in, rows_out, filtered, quarantined FROM ledger"
            " WHERE tier = %s AND batch > %s ORDER BY batch LIMIT %s",
            (self._tier.name, self._page.read[LEDGER], BATCHES),
        )
        entries = [Entry(*row) for row in rows.fetchall()]
        sentences = [sentence for entry in entries for sentence in self._follow(entry)]
        if entries:
            sentences += self._look_up(entries)
            self._page.read[LEDGER] = entries[-1].batch
        self._book.save(self._tier.name, self._page)
        return sentences

    def _follow(self, entry: Entry) -> list[str]:
        """Hold a batch against the one before it, and against itself."""
        tier, sentences = self._tier.name, []
        for partition, end in entry.ends.items():
            begin = entry.begins.get(partition, 0)
            line = self._page.lines.setdefault(partition, Line(begin))
            if begin > line.judged:
                sentences.append(
                    f"batch {entry.batch} of {tier} begins with offset {begin} of {partition}, the one before it ended at {line.judged}: "
                    f"{begin - line.judged} records were skipped; replay them from there"
                )
                self._lose(partition, line.judged, begin - line.judged)
            line.again += max(0, line.judged - begin)
            line.once += max(0, end - max(begin, line.judged))
            line.judged = max(line.judged, end)
        if entry.filtered and not self._tier.filters:
            where = next(iter(entry.ends))
            sentences.append(
                f"batch {entry.batch} of {tier} was given {entry.rows_in} records and {entry.filtered} of them went nowhere, between "
                f"{entry.begins} and {entry.ends}; if its transform leaves records out on purpose, say so with filters=True"
            )
            self._lose(where, entry.begins.get(where, 0), entry.filtered)
        return sentences

    def _look_up(self, entries: list[Entry]) -> list[str]:
        """Look into the table itself: each record that was given is there."""
        table = self._tier.sink
        if not isinstance(table, Once):
            return []
        name = sql.Identifier(table.name)
        if any(entry.rows_in > entry.read for entry in entries):
            return self._count(entries, name)
        origins = self._given(entries)
        query = sql.SQL("SELECT given FROM unnest(%s::text[]) AS given WHERE NOT EXISTS (SELECT FROM {} WHERE origin = given)").format(name)
        missing = {row[0] for row in self._book.open().execute(query, (list(origins),)).fetchall()}
        known = sum(entry.quarantined + entry.filtered for entry in entries)
        if len(missing) <= known:
            return []
        first = min((origins[origin] for origin in missing), key=_place)
        self._lose(*_place(first), len(missing) - known)
        where = f"in batches {entries[0].batch} to {entries[-1].batch}"
        sentence = f"{len(missing) - known} records that {self._tier.name} was given {where} are not in {table.name}"
        return [f"{sentence}; the first may be {first}; replay them from there"]

    def _count(self, entries: list[Entry], name: sql.Identifier) -> list[str]:
        """Where one record becomes several rows, the table has no row of the record's own name: count the rows of each batch."""
        counts = sql.SQL("SELECT batch, count(*) FROM {} WHERE batch BETWEEN %s AND %s GROUP BY batch").format(name)
        counted = dict(self._book.open().execute(counts, (entries[0].batch, entries[-1].batch)).fetchall())
        sentences = []
        for entry in entries:
            if (there := counted.get(entry.batch, 0)) < entry.rows_out:
                sentences.append(f"batch {entry.batch} of {self._tier.name} wrote {entry.rows_out} rows, and {there} are in the table")
                where = next(iter(entry.ends))
                self._lose(where, entry.begins.get(where, 0), entry.rows_out - there)
        return sentences

    def _given(self, entries: list[Entry]) -> dict[str, str]:
        """Return the origin of each record that these batches were given, and where it was read."""
        outside = self._tier.inputs[0].columns is None
        starts: dict[str, int] = {}
        ends: dict[str, int] = {}
        for entry in entries:
            for partition, end in entry.ends.items():
                starts.setdefault(partition, entry.begins.get(partition, 0))
                ends[partition] = end
        if outside:
            return {
                f"{split(partition)[1]}:{offset}": f"{partition}:{offset}"
                for partition, start in starts.items()
                for offset in range(start, ends[partition])
            }
        places = {split(partition): start for partition, start in starts.items()}
        return {seen.origin: seen.place for seen in self._streams.read(places, ends)}

    def _lose(self, partition: str, offset: int, count: int) -> None:
        line = self._page.lines[partition]
        line.lost += count
        line.first_lost = line.first_lost or f"{partition}:{offset}"


def _place(place: str) -> tuple[str, int]:
    partition, _, offset = place.rpartition(":")
    return partition, int(offset)
