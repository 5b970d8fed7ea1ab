"""The audit of a tier that writes a sink, by the tier's ledger.

Each batch must begin where the previous one ended, its counts must add up, and its records must be
in the table. The table of a tier with state has no row for a single record: the audit compares its
batches with each other, and the last batch with the table.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from psycopg import sql

from sluice.api import origins
from sluice.api.declarations import Tier
from sluice.api.sink import Sink
from sluice.audit.book import Book, Line, Missing
from sluice.kafka.reader import Streams, topic_and_number
from sluice.sinks.table import FileTable, Latest, Once, Totals
from sluice_ops.model.status import Check

log = structlog.get_logger()

BATCHES = 30
"""The most batches of one check; a backlog takes several checks."""
LEDGER = "ledger"
ADDED = "added up"
"""The source name of a table's sum at the last check."""
BY = "added up by"
"""The source name of the last batch in that sum. For a sink after the first, the names of both
sources end with that of the sink.
"""
QUARANTINE_MS = 5 * 60_000
"""Bad records go to quarantine at most this long before their batch is in the ledger.

The limit allows for different clocks of Kafka and PostgreSQL.
"""


WROTE = (
    "coalesce(sum(CASE WHEN %(first)s THEN rows_out"
    " ELSE coalesce((others->>%(table)s)::bigint, 0) END), 0)::bigint"
)
"""The rows that batches wrote into a sink, which is the tier's first one or not."""
ADDED_UP = (
    "SELECT added, (SELECT coalesce(max(batch), -1) FROM ledger WHERE tier = %(tier)s),"  # noqa: S608
    f" (SELECT {WROTE} FROM ledger WHERE tier = %(tier)s AND batch > %(before)s)"
    " FROM added_up WHERE name = %(table)s"
)
"""One statement, so that the sum and the ledger belong to one commit.

Folded rows lie before the last check.
"""
IN_FILES = (
    f"SELECT rows, batch, (SELECT {WROTE} FROM ledger"  # noqa: S608
    " WHERE tier = %(tier)s AND batch > %(before)s AND batch <= archived.batch)"
    " FROM archived WHERE name = %(table)s"
)
"""The same for the rows of files, up to the last batch that files have."""


@dataclass(frozen=True)
class Entry:
    """One batch of the ledger."""

    batch: int
    begins: dict[str, int]
    ends: dict[str, int]
    rows_in: int
    rows_out: int
    filtered: int
    quarantined: int
    at: float
    """The time of the write. Unit: epoch seconds."""
    replay: int | None = None
    """The number of the replay that wrote the batch.

    Such a batch begins and ends where the batch before it ended.
    """
    others: dict[str, int] | None = None
    """The rows that the sinks after the first got, by sink."""

    @property
    def read(self) -> int:
        """The number of offsets in the batch."""
        return sum(end - self.begins.get(partition, 0) for partition, end in self.ends.items())

    @property
    def first(self) -> str:
        """A place where the batch begins."""
        partition = next(iter(self.ends))
        return f"{partition}:{self.begins.get(partition, 0)}"


class TableAudit:
    """The audit of one tier that writes a sink."""

    def __init__(self, tier: Tier, streams: Streams, book: Book) -> None:
        """Continue from the book, or start at the first batch of the ledger."""
        self._tier = tier
        self._streams = streams
        self._book = book
        self._page = book.load(tier.name)
        self._page.checked = _checked(tier.sinks[0])

    def check(self) -> list[Missing]:
        """Check the batches since the last check, and return the newly lost records."""
        newest = (
            self._book.open()
            .execute("SELECT coalesce(max(batch), -1) FROM ledger WHERE tier = %s", (self._tier.name,))
            .fetchone()
        )
        last = -1 if newest is None else int(newest[0])
        if last < self._page.read.setdefault(LEDGER, -1):
            # a person deleted the tier's rows, and the numbers start again
            self._page.read[LEDGER] = -1
        rows = self._book.open().execute(
            "SELECT batch, begins, ends, rows_in, rows_out, filtered, quarantined,"
            " extract(epoch from at)::float8, replay, others FROM ledger"
            " WHERE tier = %s AND batch > %s ORDER BY batch LIMIT %s",
            (self._tier.name, self._page.read[LEDGER], BATCHES),
        )
        entries = [Entry(*row) for row in rows.fetchall()]
        lost = [missing for entry in entries for missing in self._follow(entry)]
        if entries:
            lost += self._compare_with_tables(entries)
            self._page.read[LEDGER] = entries[-1].batch
        for sink in self._tier.sinks:
            if isinstance(sink, Totals) and sink.counted:
                sums = f"{' + '.join(sink.counted)} of {sink.name}"
                cause = "or a person changed the table, or the counted columns of a row do not sum to 1"
                lost += self._compare_sums(ADDED_UP, sink.name, sums, cause, entries)
            elif isinstance(sink, FileTable):
                sums = f"the number of rows in the files of {sink.name}"
                lost += self._compare_sums(
                    IN_FILES, sink.name, sums, "or a person changed the table", entries
                )
        self._book.save(self._tier.name, self._page, lost)
        return lost

    def done(self) -> dict[str, int]:
        """Return, by input partition, the end of the last checked batch."""
        return {partition: line.judged for partition, line in self._page.lines.items()}

    def _follow(self, entry: Entry) -> list[Missing]:
        """Compare a batch with the batch before it, and its counts with each other."""
        tier, lost = self._tier.name, []
        for partition, end in entry.ends.items():
            begin = entry.begins.get(partition, 0)
            line = self._page.lines.setdefault(partition, Line(begin, since=begin))
            if begin > line.judged:
                sentence = (
                    f"batch {entry.batch} of {tier} begins with offset {begin} of {partition}, "
                    f"the batch before it ended at {line.judged}: {begin - line.judged} records were "
                    f"skipped; {self._availability(partition, line.judged)}"
                )
                lost.append(Missing(f"{partition}:{line.judged}", begin - line.judged, sentence))
            line.again += max(0, line.judged - begin)
            line.once += max(0, end - max(begin, line.judged))
            line.judged = end  # may go back: a person restarted the tier at earlier offsets
        if entry.filtered and not self._tier.filters and (count := entry.filtered - self._empty(entry)) > 0:
            sentence = (
                f"batch {entry.batch} of {tier} read {entry.rows_in} records, and {count} of them went "
                f"nowhere, between {entry.begins} and {entry.ends}; "
                "if the transform leaves records out on purpose, set filters=True"
            )
            lost.append(Missing(entry.first, count, sentence))
        return lost

    def _availability(self, partition: str, first: int) -> str:
        """Return which of the skipped records, from offset `first` on, the stream still has."""
        oldest = self._streams.bounds([topic_and_number(partition)[0]]).oldest.get(partition, 0)
        return (
            "they are still in the stream"
            if first >= oldest
            else f"the stream still has those from offset {oldest} on"
        )

    def _empty(self, entry: Entry) -> int:
        """Return how many offsets of a batch hold no record; the ledger counts offsets only."""
        spans = {partition: (entry.begins.get(partition, 0), end) for partition, end in entry.ends.items()}
        return sum(
            end - begin - len(self._streams.offsets_with_records(partition, begin, end))
            for partition, (begin, end) in spans.items()
            if begin < end
        )

    def _compare_with_tables(self, entries: list[Entry]) -> list[Missing]:
        """Compare batches with the rows of the tables, and return the lost records."""
        if isinstance(self._tier.sink, Latest):
            return self._check_last_batch(sql.Identifier(self._tier.sink.name))
        lost, unseen = list[Missing](), list[Entry]()
        for table in (sink.name for sink in self._tier.sinks if isinstance(sink, Once)):
            written = [entry for entry in entries if self._wrote(entry, table) is not None]
            own = [entry for entry in written if entry.replay is None]
            if any(entry.rows_in > entry.read for entry in own):
                lost += self._compare_counts(written, table)
                continue
            lost += self._compare_counts([entry for entry in written if entry.replay is not None], table)
            lost += self._compare_records(own, table) if own else []
            unseen = unseen or own
        self._count_unseen(unseen)
        return lost

    def _wrote(self, entry: Entry, sink: str) -> int | None:
        """Return the rows that a sink got; None if the batch is older than the sink."""
        return entry.rows_out if sink == self._tier.sinks[0].name else (entry.others or {}).get(sink)

    def _compare_records(self, entries: list[Entry], table: str) -> list[Missing]:
        """Return the records that these batches read and that are not in the table.

        A record that the transform leaves out twice counts as filtered twice.
        """
        records = self._records(entries)
        missing = self._absent({origin for origin, _ in records}, sql.Identifier(table))
        if missing and any(entry.quarantined for entry in entries):
            missing -= self._quarantined(entries)
        absent = [place for origin, place in records if origin in missing]
        unexplained = len(absent) - sum(entry.filtered for entry in entries)
        without_record = sum(entry.read for entry in entries) - len(records)
        if without_record and unexplained + without_record > 0:
            unexplained += sum(map(self._empty, entries))  # the ledger counts them as filtered
        count = min(unexplained, len(missing))
        if count <= 0:
            return []
        first = min(absent, key=_place)
        sentence = (
            f"{count} records that {self._tier.name} read in batches {entries[0].batch} to "
            f"{entries[-1].batch} are not in {table}; the first may be {first}; "
            "they are still in the stream"
        )
        return [Missing(first, count, sentence)]

    def _count_unseen(self, entries: list[Entry]) -> None:
        """Count and log input records that were deleted before the audit could read them."""
        if self._tier.inputs[0].columns is None:
            return  # origins follow from the offsets, so the audit reads no records
        oldest = self._streams.bounds([stream.name for stream in self._tier.inputs]).oldest
        for entry in entries:
            for partition, end in entry.ends.items():
                first = entry.begins.get(partition, 0)
                unseen = min(end, oldest.get(partition, first)) - first
                if unseen <= 0:
                    continue
                self._page.lines[partition].unseen += unseen
                log.warning(
                    "input of a batch was deleted before the audit read it, so lost records would not be "
                    "found; give the stream a longer retention",
                    tier=self._tier.name,
                    batch=entry.batch,
                    partition=partition,
                    records=unseen,
                    before=first + unseen,
                )

    def _check_last_batch(self, table: sql.Identifier) -> list[Missing]:
        """Check the last batch of a tier with state: its counts, and its rows in the table.

        Later batches replace rows, so the audit cannot compare earlier batches with the table.
        """
        query = sql.SQL(
            "SELECT batch, begins, ends, rows_in, rows_out, filtered, quarantined,"
            " extract(epoch from at)::float8, late, written,"
            " (SELECT count(*) FROM {} AS rows WHERE rows.batch = ledger.batch)"
            " FROM ledger WHERE tier = %s ORDER BY batch DESC LIMIT 1"
        ).format(table)
        newest = self._book.open().execute(query, (self._tier.name,)).fetchone()
        if newest is None:
            return []
        *row, late, written, in_table = newest
        entry, lost = Entry(*row), list[Missing]()
        if in_table < written:
            sentence = (
                f"batch {entry.batch} of {self._tier.name} wrote {written} rows, "
                f"and {in_table} are in the table"
            )
            lost.append(Missing(entry.first, written - in_table, sentence))
        if late < 0:
            sentence = (
                f"the state of {self._tier.name} has absorbed {-late} records more "
                f"than batch {entry.batch} read"
            )
            lost.append(Missing(entry.first, -late, sentence))
        return lost

    def _compare_sums(
        self, query: str, name: str, sums: str, other_cause: str, entries: list[Entry]
    ) -> list[Missing]:
        """Compare the growth of a sum since the last check with the rows of later batches.

        Both numbers belong to one commit. Earlier sums, settled losses and keys that a person
        deletes do not matter.
        """
        tier, read = self._tier.name, self._page.read
        first = name == self._tier.sinks[0].name
        added_before, by = (ADDED, BY) if first else (f"{ADDED} {name}", f"{BY} {name}")
        before = read.get(by, -1)
        totals = (
            self._book.open()
            .execute(query.encode(), {"table": name, "first": first, "tier": tier, "before": before})
            .fetchone()
        )
        if first:
            self._page.checked = Check.BATCHES if totals is None else Check.SUMS
        if totals is None:  # publishing has not created the sum yet, or no file is written yet
            return []
        added, last, wrote = totals
        grown = added - read.get(added_before, added)
        # with a smaller `last`, a person deleted the tier's rows, and the numbers start again
        is_comparable = by in read and last >= before
        if first and by not in read and last >= 0:
            for line in self._page.lines.values():
                line.partial = (
                    f"{sums} is compared from batch {last + 1} on, the first one after the first check"
                )
        read[added_before], read[by] = added, last
        if not is_comparable or grown == wrote:
            return []
        place = (
            entries[0].first
            if entries
            else next((f"{place}:{line.judged}" for place, line in self._page.lines.items()), name)
        )
        batches = (
            f"batches {before + 1} to {last} of {tier} wrote {wrote} rows"
            if last > before
            else f"no batch of {tier} wrote rows"
        )
        cause = "rows are missing" if grown < wrote else "rows were counted twice"
        sentence = f"{batches}, and {sums} grew by {grown}: {cause}, {other_cause}"
        return [Missing(place, abs(wrote - grown), sentence)]

    def _absent(self, origins_read: Iterable[str], table: sql.Identifier) -> set[str]:
        """Return the origins that are not in the table."""
        query = sql.SQL(
            "SELECT expected.name FROM unnest(%s::text[]) AS expected (name)"
            " WHERE NOT EXISTS (SELECT FROM {} AS stored WHERE stored.origin = expected.name)"
        ).format(table)
        return {row[0] for row in self._book.open().execute(query, (list(origins_read),)).fetchall()}

    def _quarantined(self, entries: list[Entry]) -> set[str]:
        """Return the origins of records that the tier put into quarantine around these batches."""
        topics = [stream.quarantine for stream in self._tier.inputs]
        since = int(entries[0].at * 1000) - QUARANTINE_MS
        records = self._streams.since(topics, self._streams.bounds(topics).ends, since)
        return {seen.origin for seen in records if seen.out.tier == self._tier.name}

    def _compare_counts(self, entries: list[Entry], table: str) -> list[Missing]:
        """Compare the number of rows of each batch with the table.

        If one record becomes several rows, no row has the record's own origin.
        """
        if not entries:
            return []
        counts = sql.SQL(
            "SELECT batch, count(*) FROM {} WHERE batch BETWEEN %s AND %s GROUP BY batch"
        ).format(sql.Identifier(table))
        counted = dict(self._book.open().execute(counts, (entries[0].batch, entries[-1].batch)).fetchall())
        lost = []
        for entry in entries:
            wrote = self._wrote(entry, table) or 0
            if (in_table := counted.get(entry.batch, 0)) < wrote:
                sentence = (
                    f"batch {entry.batch} of {self._tier.name} wrote {wrote} rows, "
                    f"and {in_table} are in {table}"
                )
                lost.append(Missing(entry.first, wrote - in_table, sentence))
        return lost

    def _records(self, entries: list[Entry]) -> list[tuple[str, str]]:
        """Return the origin and the place of each record that these batches read."""
        inputs = [stream.name for stream in self._tier.inputs]
        spans = [
            (partition, entry.begins.get(partition, 0), end)
            for entry in entries
            for partition, end in entry.ends.items()
        ]
        if self._tier.inputs[0].columns is None:
            return [
                (origins.raw_origin(inputs, *topic_and_number(partition), offset), f"{partition}:{offset}")
                for partition, begin, end in spans
                for offset in range(begin, end)
            ]
        places = {topic_and_number(partition): begin for partition, begin, _ in reversed(spans)}
        records = self._streams.read(places, {partition: end for partition, _, end in spans})
        return [
            (
                origins.origin_in_tier(
                    inputs, topic_and_number(seen.place.rpartition(":")[0])[0], seen.origin
                ),
                seen.place,
            )
            for seen in records
        ]


def _checked(sink: Sink) -> Check:
    """Return what the audit can check in a sink.

    The audit cannot read a service's rows, and knows only the sum of rows that were added up or
    are in files.
    """
    if isinstance(sink, Once):
        return Check.RECORDS
    return Check.LAST if isinstance(sink, Latest) else Check.BATCHES


def _place(place: str) -> tuple[str, int]:
    partition, _, offset = place.rpartition(":")
    return partition, int(offset)
