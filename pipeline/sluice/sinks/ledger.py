"""The transaction of a batch: rows, marks, ledger row and fence are written together or not at all.

The driver of a tier with a sink calls this module. Start with `Ledger.write`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from sluice.api.marks import Marks, first_seen
from sluice.api.origins import AGAIN, is_reprocessed
from sluice.api.sink import Absorbed, Rows, Sink, SinkAwayError, Written
from sluice.postgres import Connected, index
from sluice.sinks.batches import Batch, LastBatch, LedgerMovedError
from sluice.sinks.fence import claim
from sluice.sinks.frozen_writers import (
    FROZEN_IN_CALL_SECONDS,
    FROZEN_SECONDS,
    Right,
    end_frozen,
    name_session,
)
from sluice.sinks.refused import find_refused
from sluice.sinks.send_intents import Intent, Intents

STATEMENTS: tuple[sql.SQL | sql.Composed, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_epochs (tier text PRIMARY KEY, epoch bigint NOT NULL,"
        " incarnation bigint NOT NULL,"
        " at timestamptz NOT NULL DEFAULT now())"
    ),
    sql.SQL(  # before: the fence was the incarnation's number and the id of a shared checkpoint
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'tier_epochs' AND column_name = 'epoch') THEN"
        " ALTER TABLE tier_epochs ADD COLUMN epoch bigint NOT NULL DEFAULT 0; END IF; END $$"
    ),
    sql.SQL(  # drivers of the older version still write `query`
        "DO $$ BEGIN IF EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'tier_epochs' AND column_name = 'query'"
        " AND is_nullable = 'NO') THEN"
        " ALTER TABLE tier_epochs ALTER COLUMN query DROP NOT NULL; END IF; END $$"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS ledger (tier text, incarnation bigint NOT NULL, batch bigint,"
        " begins jsonb NOT NULL,"
        " ends jsonb NOT NULL, rows_in bigint NOT NULL, rows_out bigint NOT NULL, filtered bigint NOT NULL,"
        " quarantined bigint NOT NULL, replays bigint NOT NULL,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(),"
        " PRIMARY KEY (tier, batch), CHECK (rows_in = rows_out + filtered + quarantined + replays))"
    ),
    index("ledger_at", "ledger", "(tier, at)"),
    sql.SQL(  # before: no tier had state, so no record was late, and each row out was written
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'ledger' AND column_name = 'late') THEN"
        " ALTER TABLE ledger ADD COLUMN late bigint NOT NULL DEFAULT 0, ADD COLUMN written bigint,"
        " DROP CONSTRAINT ledger_check,"
        " ADD CONSTRAINT ledger_check CHECK (rows_in = rows_out + filtered + quarantined + replays + late);"
        " END IF; END $$"
    ),
    sql.SQL(  # before: no tier delivered at most once
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'ledger' AND column_name = 'lost') THEN"
        " ALTER TABLE ledger ADD COLUMN lost bigint NOT NULL DEFAULT 0, DROP CONSTRAINT ledger_check,"
        " ADD CONSTRAINT ledger_check"
        " CHECK (rows_in = rows_out + filtered + quarantined + replays + late + lost);"
        " END IF; END $$"
    ),
    index("ledger_lost", "ledger", "(tier) WHERE lost > 0"),
    sql.SQL(  # before: no batch belonged to a replay
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'ledger' AND column_name = 'replay') THEN"
        " ALTER TABLE ledger ADD COLUMN replay bigint; END IF; END $$"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS marks"
        " (tier text, path text, position bigint[] NOT NULL, PRIMARY KEY (tier, path))"
    ),
    sql.SQL(  # before: a position had one index, because a record could become several only once
        "DO $$ BEGIN IF EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'marks' AND column_name = 'index') THEN"
        ' ALTER TABLE marks ADD COLUMN position bigint[]; UPDATE marks SET position = ARRAY["offset", index];'
        ' ALTER TABLE marks ALTER COLUMN position SET NOT NULL, DROP COLUMN "offset", DROP COLUMN index;'
        " END IF; END $$"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_progress (tier text PRIMARY KEY, incarnation bigint NOT NULL,"
        " at timestamptz NOT NULL,"
        " rate_in float8 NOT NULL, rate_out float8 NOT NULL, lag bigint NOT NULL, latency_ms float8,"
        " slots jsonb NOT NULL, details jsonb NOT NULL)"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_streams (tier text, stream text, id text NOT NULL,"
        " at timestamptz NOT NULL DEFAULT now(),"
        " PRIMARY KEY (tier, stream))"
    ),
    # Before: without leader epochs, Sluice did not notice that a partition was cut back. After a
    # downgrade, a writer that knows no epochs may write again; `with_epochs` tells its batches.
    sql.SQL(
        "ALTER TABLE tier_streams ADD COLUMN IF NOT EXISTS epochs jsonb NOT NULL DEFAULT '{}';"
        " ALTER TABLE ledger ADD COLUMN IF NOT EXISTS with_epochs boolean NOT NULL DEFAULT false"
    ),
    # before: a run could take over with results that were older than those in the table
    sql.SQL("ALTER TABLE ledger ADD COLUMN IF NOT EXISTS watermark bigint"),
    sql.SQL("CREATE TABLE IF NOT EXISTS added_up (name text PRIMARY KEY, added bigint NOT NULL DEFAULT 0)"),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS archived"
        " (name text PRIMARY KEY, batch bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
    ),
    sql.SQL(  # before: only the writer knew the last batch of a file
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
        " AND table_name = 'archived' AND column_name = 'upto') THEN"
        " ALTER TABLE archived ADD COLUMN upto bigint; END IF; END $$"
    ),
    # before: the audit did not compare files
    sql.SQL("ALTER TABLE archived ADD COLUMN IF NOT EXISTS rows bigint NOT NULL DEFAULT 0"),
    # before: each tier had one sink
    sql.SQL("ALTER TABLE ledger ADD COLUMN IF NOT EXISTS others jsonb"),
)
"""The platform's own tables. `sluice.commands.publish` creates them."""

BATCHES = (
    "SELECT batch, ends, extract(epoch FROM at)::float8, extract(epoch FROM clock_timestamp() - at)::float8,"
    " (SELECT coalesce(jsonb_object_agg(stream, id), '{}') FROM tier_streams"
    " WHERE tier_streams.tier = ledger.tier),"
    " (SELECT coalesce(jsonb_object_agg(stream || '/' || partition, epoch), '{}') FROM tier_streams,"
    " jsonb_each(epochs) AS leaders (partition, epoch)"
    " WHERE tier_streams.tier = ledger.tier AND with_epochs), watermark FROM ledger"
    " WHERE tier = %s"
)
LAST = f"{BATCHES} ORDER BY batch DESC"
BATCH = f"{BATCHES} AND batch = %s"


class GivenUpError(LedgerMovedError):
    """The batch that another writer was sending at most once is recorded as lost.

    The tier continues after that batch.
    """

    def __init__(self, intent: Intent, lost: int) -> None:
        """Name the writer that stopped, and the number of records that may be lost."""
        super().__init__(
            f"incarnation {intent.incarnation} stopped while it sent offsets {intent.begins} to "
            f"{intent.ends}; up to {lost} records are lost, because this tier delivers at most once and "
            "sends none of them again"
        )
        self.lost = lost


class Counts(NamedTuple):
    """The counts of a batch.

    `rows_in` is the sum of rows out, filtered, quarantined, replays, late and lost.
    """

    rows_in: int
    rows_out: int
    filtered: int
    quarantined: int
    replays: int
    late: int
    lost: int
    """At most once: rows that the sink may or may not have taken."""
    written: int
    """Rows that the sink got: the rows out, or for a tier with state the changed rows."""
    refused: int = 0
    """Rows in tables `<name>_refused` for which the ledger has no column.

    Those of a tier with state are no records. Those of a sink after the first are records that the
    first one has taken.
    """


@dataclass
class Ledger(Connected):
    """Writes the batches of one incarnation of a tier."""

    tier: str
    incarnation: int
    sink: Sink
    at_most_once: bool = False
    halt: Event = field(default_factory=Event)
    """Set while an operation waits for the tier to pause or stop."""
    number: int = -1
    """The last batch written here.

    While it is the tier's last batch, the marks in memory are valid.
    """
    _marks: Marks | None = field(default=None)
    _session_right: Right | None = field(default=None)
    """The right in the name of the present session."""

    def __post_init__(self) -> None:
        self._intents = Intents(self.postgres, self.tier)
        self._inside = [sink for sink in self.sink.members if sink.transactional]
        outside = [sink for sink in self.sink.members if not sink.transactional]
        # A service comes last: while another sink is away, a retry sends it nothing again.
        self._outside = sorted(outside, key=lambda sink: not sink.exactly_once)

    def write(  # noqa: PLR0913 — the parts of a batch
        self,
        batch: Batch,
        rows: Rows,
        *,
        epoch: int,
        quarantined: int = 0,
        put_quarantined: Callable[[], None] = lambda: None,
        absorbed: Absorbed | None = None,
    ) -> Counts:
        """Write a batch that begins where the ledger ends, and return its counts.

        `epoch` is the epoch of the owner record, which gives the right to write. `put_quarantined`
        puts the `quarantined` records into quarantine once the batch is sure to be written. For a
        tier with state, `absorbed` has the counts of the input records, because a row is made of
        many records.

        FencedError if a writer with a higher right has written. LedgerMovedError if the batch does
        not begin where the ledger ends. GivenUpError if an unfinished at-most-once batch was
        recorded as lost.
        """
        right = Right(epoch, self.incarnation)
        try:
            connection = self.open()
            self._name_session(connection, right)
            with connection.transaction(), connection.cursor() as cursor:
                claim(cursor, self.tier, right)
                last = self._last(cursor)
                before = -1 if last is None else last.number
                given_up = self._record_abandoned_intent(cursor, before + 1)
                if given_up is None:
                    batch.expect(last)
                    if self._marks is None or before != self.number:
                        self._marks = self._read_marks(cursor)
                    known = self._marks | self._read_quarantine_marks(cursor, rows)
                    marks = dict(known)

                    def write(sink: Sink, own: Marks) -> Written:
                        return self._write_rows(cursor, sink, batch, rows, before + 1, own, quarantined)

                    written = _written(self._inside, known, marks, write)
                    # Not earlier: PostgreSQL may refuse the rows, and a retry would repeat this.
                    # Not later: what is sent outside cannot be undone.
                    put_quarantined()
                    written |= _written(self._outside, known, marks, write)
                    self._raise_marks(cursor, _changed_marks(known, marks))
                    first = written.pop(self.sink.name)
                    counts = (
                        _counts(batch.records, len(rows), first, quarantined)
                        if absorbed is None
                        else _counts_with_state(batch, absorbed, first)
                    )
                    counts = counts._replace(
                        refused=counts.refused + sum(other.refused for other in written.values())
                    )
                    self._record(
                        cursor, before + 1, batch, counts, with_epochs=bool(batch.epochs), others=written
                    )
                    if (
                        last is None
                        or batch.streams.items() - last.streams.items()
                        or batch.epochs.items() - last.epochs.items()
                    ):
                        self._save_streams(cursor, batch.streams, batch.epochs)
        except LedgerMovedError:
            raise
        except psycopg.errors.LockNotAvailable:
            seconds = FROZEN_IN_CALL_SECONDS if self._outside else FROZEN_SECONDS
            end_frozen(connection, right, self.tier, seconds)
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        if given_up is not None:
            raise given_up
        self._marks, self.number = (
            {path: mark for path, mark in marks.items() if not is_reprocessed(path)},
            before + 1,
        )
        return counts

    def replay(
        self,
        records: int,
        rows: Rows,
        *,
        number: int,
        quarantined: int,
        save: Callable[["psycopg.Cursor[Any]", Counts], None],
    ) -> Counts:
        """Write replayed records as a batch that begins and ends where the tier's last one ended.

        The owner of the tier keeps the right to write, and waits only for this transaction. In the
        same transaction, `save` stores the progress of the replay.
        """
        try:
            connection = self.open()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("SELECT FROM tier_epochs WHERE tier = %s FOR UPDATE", (self.tier,))
                last = self._last(cursor) or LastBatch(-1, {}, 0.0, 0.0)
                known = self._read_marks(cursor) | self._read_quarantine_marks(cursor, rows)
                marks = dict(known)

                def write(sink: Sink, own: Marks) -> Written:
                    return sink.write(cursor, rows, last.number + 1, own, self.halt)

                written = _written([*self._inside, *self._outside], known, marks, write)
                self._raise_marks(cursor, _changed_marks(known, marks))
                counts = _counts(records, len(rows), written.pop(self.sink.name), quarantined)
                self._record(
                    cursor,
                    last.number + 1,
                    Batch(last.ends, last.ends),
                    counts,
                    with_epochs=bool(last.epochs),
                    replay=number,
                    others=written,
                )
                save(cursor, counts)
        except BaseException:
            self.close()
            raise
        return counts

    def refused(self, rows: Rows) -> dict[int, str]:
        """Return the rows that PostgreSQL refuses, with its reason for each. Nothing is written."""
        if not self._inside:
            return {}
        connection = self.open()
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            last = self._last(cursor) or LastBatch(-1, {}, 0.0, 0.0)
            marks = self._read_marks(cursor) | self._read_quarantine_marks(cursor, rows)

            def write(numbers: Sequence[int]) -> None:
                raised, part = dict(marks), rows.only(numbers)
                with connection.transaction():
                    _written(
                        self._inside,
                        marks,
                        raised,
                        lambda sink, own: sink.write(cursor, part, last.number + 1, own, self.halt),
                    )
                marks.update(raised)

            return find_refused(range(len(rows)), write)

    def last(self) -> LastBatch | None:
        """Return the tier's last batch, whichever incarnation wrote it; None before the first."""
        try:
            with self.open().cursor() as cursor:
                return self._last(cursor)
        except psycopg.Error:
            self.close()
            raise

    @property
    def marks(self) -> int:
        """The number of marks as of the last batch written here."""
        return len(self._marks or ())

    def last_batches(self, count: int) -> list[LastBatch]:
        """Return the tier's last `count` batches, the newest first."""
        rows = self.open().execute(f"{LAST} LIMIT %s", (self.tier, count)).fetchall()
        return [LastBatch(*row) for row in rows]

    def batch(self, number: int) -> LastBatch | None:
        """Return one batch of the tier; None if the ledger does not have it."""
        row = self.open().execute(BATCH, (self.tier, number)).fetchone()
        return None if row is None else LastBatch(*row)

    def forget_ends(self, places: Sequence[str]) -> None:
        """Remove the ends of these partitions, so that the next batch may begin anywhere in them.

        This writes a batch without records that lacks these ends. `sluice skip` calls this
        function.
        """
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SELECT FROM tier_epochs WHERE tier = %s FOR UPDATE", (self.tier,))
            last = self._last(cursor)
            if last is not None:
                ends = {place: end for place, end in last.ends.items() if place not in places}
                self._record(
                    cursor,
                    last.number + 1,
                    Batch(ends, ends),
                    Counts(0, 0, 0, 0, 0, 0, 0, 0),
                    with_epochs=bool(last.epochs),
                )

    def begins(self) -> dict[str, int]:
        """Return where the tier's first batch began; empty before the first."""
        row = (
            self.open()
            .execute("SELECT begins FROM ledger WHERE tier = %s ORDER BY batch LIMIT 1", (self.tier,))
            .fetchone()
        )
        return {} if row is None else dict(row[0])

    def absorbed(self, after: int) -> Absorbed:
        """Return the sums of input records of a tier with state over the batches after `after`."""
        sums = self.open().execute(
            "SELECT coalesce(sum(rows_out + filtered), 0)::bigint, coalesce(sum(replays), 0)::bigint,"
            " coalesce(sum(filtered), 0)::bigint"
            " FROM ledger WHERE tier = %s AND batch > %s",
            (self.tier, after),
        )
        return Absorbed(*(sums.fetchone() or (0, 0, 0)))

    def close(self) -> None:
        """Close the connection. The next write opens a new one and reads the marks again."""
        self._marks = self._session_right = None
        self._intents.close()
        super().close()

    def _name_session(self, connection: psycopg.Connection[Any], right: Right) -> None:
        if self._session_right != right:
            name_session(connection, right, self.tier)
            self._session_right = right

    def _write_rows(  # noqa: PLR0913, PLR0917 — the parts of a batch
        self,
        cursor: psycopg.Cursor[Any],
        sink: Sink,
        batch: Batch,
        rows: Rows,
        number: int,
        marks: Marks,
        quarantined: int,
    ) -> Written:
        """Have a sink write the rows.

        For at-most-once, store the intent before anything is sent.
        """
        if not self.at_most_once:
            return sink.write(cursor, rows, number, marks, self.halt)
        raised = dict(marks)
        unknown = Written(0, lost=len(first_seen(raised, rows.paths, rows.origins)))
        counts = _counts(batch.records, len(rows), unknown, quarantined)
        changed = _changed_marks(marks, raised)
        self._intents.declare(
            Intent(self.incarnation, batch.begins, batch.ends, counts, changed, batch.streams, batch.epochs)
        )
        try:
            written = sink.write_at_most_once(cursor, rows, number, marks, self.halt)
        except SinkAwayError:
            self._intents.withdraw()
            raise
        self._intents.take(cursor)
        return written

    def _record_abandoned_intent(self, cursor: psycopg.Cursor[Any], number: int) -> GivenUpError | None:
        """Record as lost the unfinished at-most-once batch of a stopped writer, if there is one."""
        intent = self._intents.take(cursor)
        if intent is None:
            return None
        counts = Counts(*intent.counts)
        self._raise_marks(cursor, intent.marks)
        self._record(
            cursor, number, Batch(intent.begins, intent.ends), counts, with_epochs=bool(intent.epochs)
        )
        self._save_streams(cursor, intent.streams, intent.epochs)
        return GivenUpError(intent, counts.lost)

    def adopt_streams(self, streams: Mapping[str, str]) -> None:
        """Store the topic ids of streams for which the tier has positions but no known ids."""
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            self._save_streams(cursor, streams, {})

    def _save_streams(
        self, cursor: psycopg.Cursor[Any], streams: Mapping[str, str], epochs: Mapping[str, int]
    ) -> None:
        """Store the topic ids of streams, and the leader epochs of all their partitions."""
        leaders = [(*place.rpartition("/")[::2], epoch) for place, epoch in epochs.items()]
        epochs_by_stream = {
            stream: {number: epoch for topic, number, epoch in leaders if topic == stream}
            for stream in streams
        }
        cursor.executemany(
            "INSERT INTO tier_streams (tier, stream, id, epochs) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (tier, stream)"
            " DO UPDATE SET (id, epochs, at) = (excluded.id, excluded.epochs, now())",
            [
                (self.tier, stream, identity, json.dumps(epochs_by_stream[stream]))
                for stream, identity in streams.items()
            ],
        )

    def _last(self, cursor: psycopg.Cursor[Any]) -> LastBatch | None:
        row = cursor.execute(f"{LAST} LIMIT 1", (self.tier,)).fetchone()
        return None if row is None else LastBatch(*row)

    def _read_marks(self, cursor: psycopg.Cursor[Any]) -> Marks:
        """Return all marks except those of records that were reprocessed from quarantine."""
        cursor.execute(
            "SELECT path, position FROM marks WHERE tier = %s AND path NOT LIKE %s",
            (self.tier, f"%/{AGAIN}:%"),
        )
        return {path: tuple(position) for path, position in cursor.fetchall()}

    def _read_quarantine_marks(self, cursor: psycopg.Cursor[Any], rows: Rows) -> Marks:
        """Return the marks of records that were reprocessed from quarantine.

        Each of these records has its own path, so these marks are kept in PostgreSQL only.
        """
        paths = sorted({path for path in rows.paths if is_reprocessed(path)})
        if not paths:
            return {}
        cursor.execute(
            "SELECT path, position FROM marks WHERE tier = %s AND path = ANY(%s)", (self.tier, paths)
        )
        return {path: tuple(position) for path, position in cursor.fetchall()}

    def _raise_marks(self, cursor: psycopg.Cursor[Any], marks: Marks) -> None:
        if marks:
            cursor.executemany(
                "INSERT INTO marks (tier, path, position) VALUES (%s, %s, %s)"
                " ON CONFLICT (tier, path) DO UPDATE SET position = excluded.position",
                [(self.tier, path, list(position)) for path, position in marks.items()],
            )

    def _record(  # noqa: PLR0913 — the columns of the ledger
        self,
        cursor: psycopg.Cursor[Any],
        number: int,
        batch: Batch,
        counts: Counts,
        *,
        with_epochs: bool,
        replay: int | None = None,
        others: Mapping[str, Written] | None = None,
    ) -> None:
        cursor.execute(
            "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered,"
            " quarantined, replays, late, lost, written, replay, with_epochs, others, watermark)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                self.tier,
                self.incarnation,
                number,
                json.dumps(batch.begins),
                json.dumps(batch.ends),
                *counts[:-1],
                replay,
                with_epochs,
                json.dumps({name: written.new for name, written in others.items()}) if others else None,
                batch.watermark,
            ),
        )


def _counts(records: int, kept: int, written: Written, quarantined: int) -> Counts:
    """Return the counts of a batch with this number of input records.

    If records became several rows, `rows_in` counts rows, and nothing is filtered.
    """
    rows_in = max(records, kept + quarantined)
    replays = kept - written.new - written.refused - written.lost
    filtered = rows_in - kept - quarantined
    return Counts(
        rows_in, written.new, filtered, quarantined + written.refused, replays, 0, written.lost, written.new
    )


def _counts_with_state(batch: Batch, absorbed: Absorbed, written: Written) -> Counts:
    """Return the counts of a batch of a tier with state.

    `rows_out` counts the records that the state contains, without those that it dropped unmatched.
    """
    late = batch.records - absorbed.taken - absorbed.replays
    rows_out = absorbed.taken - absorbed.unmatched
    return Counts(
        batch.records,
        rows_out,
        absorbed.unmatched,
        0,
        absorbed.replays,
        late,
        0,
        written.new,
        written.refused,
    )


def _written(
    sinks: Sequence[Sink], known: Marks, marks: Marks, write: Callable[[Sink, Marks], Written]
) -> dict[str, Written]:
    """Have sinks write one after the other; return their results by name.

    Each one gets the known marks, because what one has taken is still new for the others. The
    raised ones go into `marks`.
    """
    results = {}
    for sink in sinks:
        own = dict(known)
        results[sink.name] = write(sink, own)
        for path, mark in _changed_marks(known, own).items():
            marks[path] = max(mark, marks.get(path, mark))
    return results


def _changed_marks(known: Marks, marks: Marks) -> Marks:
    """Return the marks that differ from the known ones."""
    return {path: mark for path, mark in marks.items() if known.get(path) != mark}
