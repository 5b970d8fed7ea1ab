"""Audits a tier that fills a table: its batches follow on each other, they add up, and what they were given is in the table.

Of a tier with state the table has no row of a record's own: its batches are held against each other, and the last one against the table.
"""

from dataclasses import dataclass

import structlog
from psycopg import sql

from sluice.api import origins
from sluice.api.declarations import Tier
from sluice.api.sink import Sink
from sluice.audit.book import Book, Line, Missing
from sluice.kafka.reader import Streams, topic_and_number
from sluice.sinks.table import Latest, Once, Totals
from sluice_ops.model.status import Check

log = structlog.get_logger()

BATCHES = 30
"""The most of one look, so that a backlog does not become one huge look."""
LEDGER = "ledger"
ADDED = "added up"
"""How much had been added up in the table at the last look."""
BY = "added up by"
"""The last batch that had added to it then."""
ASIDE_MS = 5 * 60_000
"""Bad records are put aside within this time before their batch is in the ledger, however the clocks of Kafka and PostgreSQL differ."""


ADDED_UP = (
    "SELECT added, (SELECT coalesce(max(batch), -1) FROM ledger WHERE tier = %(tier)s),"
    " (SELECT coalesce(sum(rows_out), 0)::bigint FROM ledger WHERE tier = %(tier)s AND batch > %(before)s)"
    " FROM added_up WHERE name = %(table)s"
)
"""One statement, so that the table and the ledger are those of one commit. Rows that were folded lie before the last look."""


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
    at: float
    """When it was written. Unit: epoch seconds."""
    replay: int | None = None
    """The replay whose records these are: it begins and ends where the one before it ended."""

    @property
    def read(self) -> int:
        """How many records it was given."""
        return sum(end - self.begins.get(partition, 0) for partition, end in self.ends.items())

    @property
    def first(self) -> str:
        """Name a place where it begins."""
        partition = next(iter(self.ends))
        return f"{partition}:{self.begins.get(partition, 0)}"


class TableAudit:
    """One tier."""

    def __init__(self, tier: Tier, streams: Streams, book: Book) -> None:
        """Go on from what the book remembers; without a page, begin with the first batch of the ledger."""
        self._tier = tier
        self._streams = streams
        self._book = book
        self._page = book.load(tier.name)
        self._page.checked = _checked(tier.sink)

    def look(self) -> list[Missing]:
        """Judge the batches since the last look, and return what is newly lost."""
        newest = (
            self._book.open()
            .execute("SELECT coalesce(max(batch), -1) FROM ledger WHERE tier = %s", (self._tier.name,))
            .fetchone()
        )
        last = -1 if newest is None else int(newest[0])
        if last < self._page.read.setdefault(
            LEDGER, -1
        ):  # a person has deleted its rows, and the numbers begin again
            self._page.read[LEDGER] = -1
        rows = self._book.open().execute(
            "SELECT batch, begins, ends, rows_in, rows_out, filtered, quarantined, extract(epoch from at)::float8, replay FROM ledger"
            " WHERE tier = %s AND batch > %s ORDER BY batch LIMIT %s",
            (self._tier.name, self._page.read[LEDGER], BATCHES),
        )
        entries = [Entry(*row) for row in rows.fetchall()]
        lost = [missing for entry in entries for missing in self._follow(entry)]
        if entries:
            lost += self._look_up(entries)
            self._page.read[LEDGER] = entries[-1].batch
        if isinstance(self._tier.sink, Totals) and self._tier.sink.counted:
            lost += self._add_up(self._tier.sink, entries)
        self._book.save(self._tier.name, self._page, lost)
        return lost

    def done(self) -> dict[str, int]:
        """Return where the last batch ended that was looked at."""
        return {partition: line.judged for partition, line in self._page.lines.items()}

    def _follow(self, entry: Entry) -> list[Missing]:
        """Hold a batch against the one before it, and against itself."""
        tier, lost = self._tier.name, []
        for partition, end in entry.ends.items():
            begin = entry.begins.get(partition, 0)
            line = self._page.lines.setdefault(partition, Line(begin, since=begin))
            if begin > line.judged:
                sentence = (
                    f"batch {entry.batch} of {tier} begins with offset {begin} of {partition}, the one before it ended at {line.judged}: "
                    f"{begin - line.judged} records were skipped; {self._still_there(partition, line.judged)}"
                )
                lost.append(Missing(f"{partition}:{line.judged}", begin - line.judged, sentence))
            line.again += max(0, line.judged - begin)
            line.once += max(0, end - max(begin, line.judged))
            line.judged = end  # also where a person has had the tier begin anew, with less
        if entry.filtered and not self._tier.filters and (nowhere := entry.filtered - self._empty(entry)) > 0:
            sentence = (
                f"batch {entry.batch} of {tier} was given {entry.rows_in} records and {nowhere} of them went nowhere, between "
                f"{entry.begins} and {entry.ends}; if its transform leaves records out on purpose, say so with filters=True"
            )
            lost.append(Missing(entry.first, nowhere, sentence))
        return lost

    def _still_there(self, partition: str, first: int) -> str:
        """Say whether what was skipped can be had again."""
        oldest = self._streams.bounds([topic_and_number(partition)[0]]).oldest.get(partition, 0)
        return (
            "they are still in the stream"
            if first >= oldest
            else f"of those, the stream holds what is from offset {oldest} on"
        )

    def _empty(self, entry: Entry) -> int:
        """Count the offsets of a batch that hold no record: the ledger knows offsets only."""
        spans = {partition: (entry.begins.get(partition, 0), end) for partition, end in entry.ends.items()}
        return sum(
            end - begin - len(self._streams.offsets_with_records(partition, begin, end))
            for partition, (begin, end) in spans.items()
            if begin < end
        )

    def _look_up(self, entries: list[Entry]) -> list[Missing]:
        """Look into the table itself: each record that was given is there."""
        table = self._tier.sink
        if isinstance(table, Latest):
            return self._newest(sql.Identifier(table.name))
        if not isinstance(table, Once):
            return []
        name = sql.Identifier(table.name)
        replays = [entry for entry in entries if entry.replay is not None]
        lost = self._count(replays, name) if replays else []
        own = [entry for entry in entries if entry.replay is None]
        return lost + (self._compare(own, table) if own else [])

    def _compare(self, entries: list[Entry], table: Once) -> list[Missing]:
        """Hold what these batches were given against the table."""
        name = sql.Identifier(table.name)
        if any(entry.rows_in > entry.read for entry in entries):
            return self._count(entries, name)
        given = self._given(entries)
        self._pass_over(entries)
        missing = self._absent(given, name)
        if missing and any(entry.quarantined for entry in entries):
            missing -= self._aside(entries)
        count = len(missing) - sum(entry.filtered for entry in entries)
        if count <= 0:
            return []
        first = min((given[origin] for origin in missing), key=_place)
        where = f"in batches {entries[0].batch} to {entries[-1].batch}"
        sentence = f"{count} records that {self._tier.name} was given {where} are not in {table.name}"
        return [Missing(first, count, f"{sentence}; the first may be {first}; they are still in the stream")]

    def _pass_over(self, entries: list[Entry]) -> None:
        """Count and say what was no longer in the input when it was read here: of that nobody knows."""
        if self._tier.inputs[0].columns is None:
            return  # the names are made of places, and nothing was read
        oldest = self._streams.bounds([stream.name for stream in self._tier.inputs]).oldest
        for entry in entries:
            for partition, end in entry.ends.items():
                first = entry.begins.get(partition, 0)
                gone = min(end, oldest.get(partition, first)) - first
                if gone <= 0:
                    continue
                self._page.lines[partition].unseen += gone
                log.warning(
                    "what a batch was given was gone before it was looked for in the table: nobody knows whether records are lost; "
                    "give the stream a longer retention",
                    tier=self._tier.name,
                    batch=entry.batch,
                    partition=partition,
                    records=gone,
                    before=first + gone,
                )

    def _newest(self, table: sql.Identifier) -> list[Missing]:
        """Of a tier with state, hold the last batch against itself and the table, where nothing has taken its rows' place yet."""
        query = sql.SQL(
            "SELECT batch, begins, ends, rows_in, rows_out, filtered, quarantined, extract(epoch from at)::float8, late, written,"
            " (SELECT count(*) FROM {} AS rows WHERE rows.batch = ledger.batch) FROM ledger WHERE tier = %s ORDER BY batch DESC LIMIT 1"
        ).format(table)
        newest = self._book.open().execute(query, (self._tier.name,)).fetchone()
        if newest is None:
            return []
        *row, late, written, there = newest
        entry, lost = Entry(*row), list[Missing]()
        if there < written:
            sentence = (
                f"batch {entry.batch} of {self._tier.name} wrote {written} rows, and {there} are in the table"
            )
            lost.append(Missing(entry.first, written - there, sentence))
        if late < 0:
            sentence = f"the state of {self._tier.name} has taken in {-late} records more than batch {entry.batch} was given"
            lost.append(Missing(entry.first, -late, sentence))
        return lost

    def _add_up(self, table: Totals, entries: list[Entry]) -> list[Missing]:
        """Hold what has been added up since the last look against the rows of the batches since then, both as of one moment.

        What was there before, was settled, or a person takes out with its key is not concerned.
        """
        tier, read = self._tier.name, self._page.read
        before = read.get(BY, -1)
        totals = (
            self._book.open()
            .execute(ADDED_UP, {"table": table.name, "tier": tier, "before": before})
            .fetchone()
        )
        self._page.checked = Check.BATCHES if totals is None else Check.SUMS
        if totals is None:  # it is not published yet that it is to be noted
            return []
        added, last, wrote = totals
        grown = added - read.get(ADDED, added)
        is_comparable = (
            BY in read and last >= before
        )  # else a person has deleted its rows, and the numbers begin again
        if BY not in read and last >= 0:
            for line in self._page.lines.values():
                line.partial = f"{' + '.join(table.counted)} is compared from batch {last + 1} on, which followed the first look"
        read[ADDED], read[BY] = added, last
        if not is_comparable or grown == wrote:
            return []
        place = (
            entries[0].first
            if entries
            else next((f"{name}:{line.judged}" for name, line in self._page.lines.items()), table.name)
        )
        batches = (
            f"batches {before + 1} to {last} of {tier} wrote {wrote} rows"
            if last > before
            else f"no batch of {tier} wrote rows"
        )
        what = f"{batches}, and {' + '.join(table.counted)} of {table.name} grew by {grown}"
        why = "rows are missing" if grown < wrote else "rows were counted twice"
        return [Missing(place, abs(wrote - grown), f"{what}: {why}, or somebody has changed it by hand")]

    def _absent(self, given: dict[str, str], table: sql.Identifier) -> set[str]:
        query = sql.SQL(
            "SELECT given FROM unnest(%s::text[]) AS given WHERE NOT EXISTS (SELECT FROM {} WHERE origin = given)"
        ).format(table)
        return {row[0] for row in self._book.open().execute(query, (list(given),)).fetchall()}

    def _aside(self, entries: list[Entry]) -> set[str]:
        """Return the origins of the records that the tier has put into quarantine around these batches."""
        topics = [stream.quarantine for stream in self._tier.inputs]
        since = int(entries[0].at * 1000) - ASIDE_MS
        put = self._streams.since(topics, self._streams.bounds(topics).ends, since)
        return {seen.origin for seen in put if seen.out.tier == self._tier.name}

    def _count(self, entries: list[Entry], name: sql.Identifier) -> list[Missing]:
        """Where one record becomes several rows, the table has no row of the record's own name: count the rows of each batch."""
        counts = sql.SQL(
            "SELECT batch, count(*) FROM {} WHERE batch BETWEEN %s AND %s GROUP BY batch"
        ).format(name)
        counted = dict(self._book.open().execute(counts, (entries[0].batch, entries[-1].batch)).fetchall())
        lost = []
        for entry in entries:
            if (there := counted.get(entry.batch, 0)) < entry.rows_out:
                sentence = f"batch {entry.batch} of {self._tier.name} wrote {entry.rows_out} rows, and {there} are in the table"
                lost.append(Missing(entry.first, entry.rows_out - there, sentence))
        return lost

    def _given(self, entries: list[Entry]) -> dict[str, str]:
        """Return the origin of each record that these batches were given, and where it was read."""
        inputs = [stream.name for stream in self._tier.inputs]
        spans = [
            (partition, entry.begins.get(partition, 0), end)
            for entry in entries
            for partition, end in entry.ends.items()
        ]
        if self._tier.inputs[0].columns is None:
            return {
                origins.raw_origin(inputs, *topic_and_number(partition), offset): f"{partition}:{offset}"
                for partition, begin, end in spans
                for offset in range(begin, end)
            }
        places = {topic_and_number(partition): begin for partition, begin, _ in reversed(spans)}
        records = self._streams.read(places, {partition: end for partition, _, end in spans})
        return {
            origins.origin_in_tier(
                inputs, topic_and_number(seen.place.rpartition(":")[0])[0], seen.origin
            ): seen.place
            for seen in records
        }


def _checked(sink: Sink | None) -> Check:
    """Tell what can be looked at: a service's rows cannot be, nor those that were added up, but for how much that is."""
    if isinstance(sink, Once):
        return Check.RECORDS
    return Check.LAST if isinstance(sink, Latest) else Check.BATCHES


def _place(place: str) -> tuple[str, int]:
    partition, _, offset = place.rpartition(":")
    return partition, int(offset)
