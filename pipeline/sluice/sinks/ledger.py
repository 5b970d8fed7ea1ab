"""The transaction of a batch: rows, marks, ledger row and the fence, all of it or nothing. Called by the driver of a tier with a table."""

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
from sluice.sinks.batches import Batch, Last, MovedError
from sluice.sinks.frozen_writers import CALLS_SECONDS, FROZEN_SECONDS, Right, call, end_frozen
from sluice.sinks.refused import refused
from sluice.sinks.send_intents import Intent, Intents

STATEMENTS: tuple[sql.SQL | sql.Composed, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_epochs (tier text PRIMARY KEY, epoch bigint NOT NULL, incarnation bigint NOT NULL,"
        " at timestamptz NOT NULL DEFAULT now())"
    ),
    sql.SQL(  # an incarnation was fenced by its number alone, and by the id of the checkpoint that all of them shared
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'tier_epochs' AND column_name = 'epoch') THEN"
        " ALTER TABLE tier_epochs ADD COLUMN epoch bigint NOT NULL DEFAULT 0; END IF; END $$"
    ),
    sql.SQL(  # drivers that still run write it
        "DO $$ BEGIN IF EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'tier_epochs' AND column_name = 'query'"
        " AND is_nullable = 'NO') THEN"
        " ALTER TABLE tier_epochs ALTER COLUMN query DROP NOT NULL; END IF; END $$"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS ledger (tier text, incarnation bigint NOT NULL, batch bigint, begins jsonb NOT NULL,"
        " ends jsonb NOT NULL, rows_in bigint NOT NULL, rows_out bigint NOT NULL, filtered bigint NOT NULL,"
        " quarantined bigint NOT NULL, replays bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),"
        " PRIMARY KEY (tier, batch), CHECK (rows_in = rows_out + filtered + quarantined + replays))"
    ),
    index("ledger_at", "ledger", "(tier, at)"),
    sql.SQL(  # tiers without state were all there was: nothing was late, and each row that came out was written
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'ledger' AND column_name = 'late') THEN"
        " ALTER TABLE ledger ADD COLUMN late bigint NOT NULL DEFAULT 0, ADD COLUMN written bigint, DROP CONSTRAINT ledger_check,"
        " ADD CONSTRAINT ledger_check CHECK (rows_in = rows_out + filtered + quarantined + replays + late); END IF; END $$"
    ),
    sql.SQL(  # nothing was delivered at most once
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'ledger' AND column_name = 'lost') THEN"
        " ALTER TABLE ledger ADD COLUMN lost bigint NOT NULL DEFAULT 0, DROP CONSTRAINT ledger_check,"
        " ADD CONSTRAINT ledger_check CHECK (rows_in = rows_out + filtered + quarantined + replays + late + lost); END IF; END $$"
    ),
    index("ledger_lost", "ledger", "(tier) WHERE lost > 0"),
    sql.SQL(  # a batch was always the tier's own, never a replay's
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'ledger' AND column_name = 'replay') THEN"
        " ALTER TABLE ledger ADD COLUMN replay bigint; END IF; END $$"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS marks (tier text, path text, position bigint[] NOT NULL, PRIMARY KEY (tier, path))"
    ),
    sql.SQL(  # a position was an offset and one index, before records could become several more than once on their way
        "DO $$ BEGIN IF EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'marks' AND column_name = 'index') THEN"
        ' ALTER TABLE marks ADD COLUMN position bigint[]; UPDATE marks SET position = ARRAY["offset", index];'
        ' ALTER TABLE marks ALTER COLUMN position SET NOT NULL, DROP COLUMN "offset", DROP COLUMN index; END IF; END $$'
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_progress (tier text PRIMARY KEY, incarnation bigint NOT NULL, at timestamptz NOT NULL,"
        " rate_in float8 NOT NULL, rate_out float8 NOT NULL, lag bigint NOT NULL, latency_ms float8,"
        " slots jsonb NOT NULL, details jsonb NOT NULL)"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_streams (tier text, stream text, id text NOT NULL, at timestamptz NOT NULL DEFAULT now(),"
        " PRIMARY KEY (tier, stream))"
    ),
    sql.SQL(  # a partition that was cut back was not told from one that was not; who knows no epochs may write again, after a downgrade
        "ALTER TABLE tier_streams ADD COLUMN IF NOT EXISTS epochs jsonb NOT NULL DEFAULT '{}';"
        " ALTER TABLE ledger ADD COLUMN IF NOT EXISTS with_epochs boolean NOT NULL DEFAULT false"
    ),
    sql.SQL("CREATE TABLE IF NOT EXISTS added_up (name text PRIMARY KEY, added bigint NOT NULL DEFAULT 0)"),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS archived (name text PRIMARY KEY, batch bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"
    ),
    sql.SQL(  # where a file ended was known to its writer alone
        "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name = 'archived' AND column_name = 'upto') THEN"
        " ALTER TABLE archived ADD COLUMN upto bigint; END IF; END $$"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS campaign_daily (day date, campaign text, views bigint NOT NULL, clicks bigint NOT NULL,"
        " buys bigint NOT NULL, PRIMARY KEY (day, campaign))"
    ),
)
"""Tables of the platform itself; `sluice.commands.publish` creates them."""

LAST = (
    "SELECT batch, ends, extract(epoch FROM at)::float8, extract(epoch FROM clock_timestamp() - at)::float8,"
    " (SELECT coalesce(jsonb_object_agg(stream, id), '{}') FROM tier_streams WHERE tier_streams.tier = ledger.tier),"
    " (SELECT coalesce(jsonb_object_agg(stream || '/' || partition, epoch), '{}') FROM tier_streams,"
    " jsonb_each(epochs) AS leaders (partition, epoch) WHERE tier_streams.tier = ledger.tier AND with_epochs) FROM ledger"
    " WHERE tier = %s ORDER BY batch DESC"
)


class FencedError(Exception):
    """One with a better right has written: this one must not."""


class GivenUpError(MovedError):
    """What another was sending at most once when it ended is written down as lost; the batch goes on behind it."""

    def __init__(self, intent: Intent, lost: int) -> None:
        """Say who it was, and how many records may be lost."""
        super().__init__(
            f"incarnation {intent.incarnation} ended while it was sending {intent.begins} to {intent.ends}: "
            f"up to {lost} records are lost, and none is sent again"
        )
        self.lost = lost


class Counts(NamedTuple):
    """What came of a batch: rows in are rows out, filtered, quarantined, replays, late and lost together."""

    rows_in: int
    rows_out: int
    filtered: int
    quarantined: int
    replays: int
    late: int
    lost: int
    """At most once: it is not known whether they were taken."""
    written: int
    """Rows that the sink got: those out, or of a tier with state those that have changed."""
    refused: int = 0
    """Of a tier with state: rows that its table does not take, and keeps aside. They are no records, so the ledger does not have them."""


@dataclass
class Ledger(Connected):
    """Writes the batches of one incarnation of a tier."""

    tier: str
    incarnation: int
    sink: Sink
    at_most_once: bool = False
    halt: Event = field(default_factory=Event)
    """Set while somebody waits for the tier to hold."""
    number: int = -1
    """The last batch written here: as long as it is the tier's last one, the marks are known."""
    _marks: Marks | None = field(default=None)
    _called: Right | None = field(default=None)
    """How its connection is named."""

    def __post_init__(self) -> None:
        """Prepare; nothing is opened yet."""
        self._intents = Intents(self.postgres, self.tier)

    def write(  # noqa: PLR0913 — what a batch is
        self,
        batch: Batch,
        rows: Rows,
        *,
        epoch: int,
        quarantined: int = 0,
        aside: Callable[[], None] = lambda: None,
        absorbed: Absorbed | None = None,
    ) -> Counts:
        """Write a batch that begins where the ledger ends, by the right of the owner record's `epoch`; return what came of it.

        `aside` puts those that are `quarantined` there, once it is clear that the batch is to be written. Of a tier with state, `absorbed`
        says what became of the batch's records, for the rows are made of many.
        """
        try:
            connection = self.open()
            self._call(connection, Right(epoch, self.incarnation))
            with connection.transaction(), connection.cursor() as cursor:
                self._claim(cursor, epoch)
                last = self._last(cursor)
                before = -1 if last is None else last.number
                given_up = self._give_up(cursor, before + 1)
                if given_up is None:
                    batch.expect(last)
                    if self._marks is None or before != self.number:
                        self._marks = self._read_marks(cursor)
                    known = self._marks | self._read_again(cursor, rows)
                    marks = dict(known)
                    if not self.sink.transactional:
                        aside()  # before what cannot be taken back
                    written = self._put(cursor, batch, rows, before + 1, marks, quarantined)
                    if self.sink.transactional:
                        aside()  # after what may be refused, or it would be put there again with each try
                    self._raise_marks(cursor, _raised(known, marks))
                    made = _counts(batch.records, len(rows), written, quarantined)
                    counts = made if absorbed is None else _absorbed(batch, absorbed, written)
                    self._record(cursor, before + 1, batch, counts, with_epochs=bool(batch.epochs))
                    if (
                        last is None
                        or batch.streams.items() - last.streams.items()
                        or batch.epochs.items() - last.epochs.items()
                    ):
                        self._name(cursor, batch.streams, batch.epochs)
        except MovedError:
            raise
        except psycopg.errors.LockNotAvailable:
            seconds = FROZEN_SECONDS if self.sink.transactional else CALLS_SECONDS
            end_frozen(connection, Right(epoch, self.incarnation), self.tier, seconds)
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
        """Write what became of so many records of long ago as a batch of the tier that begins and ends where the last one ended.

        Whoever owns the tier keeps the right to write, and only waits for this transaction, in which `save` notes how far the replay is.
        """
        try:
            connection = self.open()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("SELECT FROM tier_epochs WHERE tier = %s FOR UPDATE", (self.tier,))
                last = self._last(cursor) or Last(-1, {}, 0.0, 0.0)
                known = self._read_marks(cursor) | self._read_again(cursor, rows)
                marks = dict(known)
                written = self.sink.write(cursor, rows, last.number + 1, marks, self.halt)
                self._raise_marks(cursor, _raised(known, marks))
                counts = _counts(records, len(rows), written, quarantined)
                self._record(
                    cursor,
                    last.number + 1,
                    Batch(last.ends, last.ends),
                    counts,
                    with_epochs=bool(last.epochs),
                    replay=number,
                )
                save(cursor, counts)
        except BaseException:
            self.close()
            raise
        return counts

    def refused(self, rows: Rows) -> dict[int, str]:
        """Return which rows PostgreSQL does not take, and what it says of each; nothing is written."""
        if not self.sink.transactional:
            return {}
        connection = self.open()
        with connection.transaction(force_rollback=True), connection.cursor() as cursor:
            last = self._last(cursor) or Last(-1, {}, 0.0, 0.0)
            marks = self._read_marks(cursor) | self._read_again(cursor, rows)

            def write(some: Sequence[int]) -> None:
                ahead = dict(marks)
                with connection.transaction():
                    self.sink.write(cursor, rows.only(some), last.number + 1, ahead, self.halt)
                marks.update(ahead)

            return refused(range(len(rows)), write)

    def last(self) -> Last | None:
        """Return the tier's last batch, whoever wrote it."""
        try:
            with self.open().cursor() as cursor:
                return self._last(cursor)
        except psycopg.Error:
            self.close()
            raise

    @property
    def marks(self) -> int:
        """How many marks its sink tells replays by, as of its last batch."""
        return len(self._marks or ())

    def endings(self, most: int) -> list[Last]:
        """Return the tier's last batches, the newest first."""
        rows = self.open().execute(f"{LAST} LIMIT %s", (self.tier, most)).fetchall()
        return [Last(*row) for row in rows]

    def leave(self, places: Sequence[str]) -> None:
        """Let the next batch begin in these partitions wherever they do, as a person has decided: one without records ends elsewhere."""
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SELECT FROM tier_epochs WHERE tier = %s FOR UPDATE", (self.tier,))
            last = self._last(cursor)
            if last is not None:
                kept = {place: end for place, end in last.ends.items() if place not in places}
                self._record(
                    cursor,
                    last.number + 1,
                    Batch(kept, kept),
                    Counts(0, 0, 0, 0, 0, 0, 0, 0),
                    with_epochs=bool(last.epochs),
                )

    def begins(self) -> dict[str, int]:
        """Return where the tier's first batch began."""
        row = (
            self.open()
            .execute("SELECT begins FROM ledger WHERE tier = %s ORDER BY batch LIMIT 1", (self.tier,))
            .fetchone()
        )
        return {} if row is None else dict(row[0])

    def absorbed(self, after: int) -> Absorbed:
        """Return what a tier with state has taken in by batches after that number."""
        sums = self.open().execute(
            "SELECT coalesce(sum(rows_out + filtered), 0)::bigint, coalesce(sum(replays), 0)::bigint, coalesce(sum(filtered), 0)::bigint"
            " FROM ledger WHERE tier = %s AND batch > %s",
            (self.tier, after),
        )
        return Absorbed(*(sums.fetchone() or (0, 0, 0)))

    def close(self) -> None:
        """Give the connection back; the next write opens a new one, and reads the marks again."""
        self._marks = self._called = None
        self._intents.close()
        super().close()

    def _call(self, connection: psycopg.Connection[Any], right: Right) -> None:
        if self._called != right:
            call(connection, right, self.tier)
            self._called = right

    def _put(  # noqa: PLR0913, PLR0917 — what a batch is
        self,
        cursor: psycopg.Cursor[Any],
        batch: Batch,
        rows: Rows,
        number: int,
        marks: Marks,
        quarantined: int,
    ) -> Written:
        """Have the sink write; before it sends anything at most once, say what."""
        if not self.at_most_once:
            return self.sink.write(cursor, rows, number, marks, self.halt)
        ahead = dict(marks)
        unknown = Written(0, lost=len(first_seen(ahead, rows.paths, rows.origins)))
        counts = _counts(batch.records, len(rows), unknown, quarantined)
        raised = _raised(marks, ahead)
        self._intents.declare(
            Intent(self.incarnation, batch.begins, batch.ends, counts, raised, batch.streams, batch.epochs)
        )
        try:
            written = self.sink.write_at_most_once(cursor, rows, number, marks, self.halt)
        except SinkAwayError:
            self._intents.withdraw()
            raise
        self._intents.take(cursor)
        return written

    def _give_up(self, cursor: psycopg.Cursor[Any], number: int) -> GivenUpError | None:
        """Record what another was sending at most once when it ended, if anything: all of it may be lost."""
        intent = self._intents.take(cursor)
        if intent is None:
            return None
        counts = Counts(*intent.counts)
        self._raise_marks(cursor, intent.marks)
        self._record(
            cursor, number, Batch(intent.begins, intent.ends), counts, with_epochs=bool(intent.epochs)
        )
        self._name(cursor, intent.streams, intent.epochs)
        return GivenUpError(intent, counts.lost)

    def adopt(self, streams: Mapping[str, str]) -> None:
        """Take the tier's positions in these streams, whose ids were not known, for positions in those that there are."""
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            self._name(cursor, streams, {})

    def _name(
        self, cursor: psycopg.Cursor[Any], streams: Mapping[str, str], epochs: Mapping[str, int]
    ) -> None:
        """Keep the ids of the streams that a batch was read from, and the epochs of the leaders of all their partitions."""
        leaders = [(*place.rpartition("/")[::2], epoch) for place, epoch in epochs.items()]
        of_each = {
            stream: {number: epoch for topic, number, epoch in leaders if topic == stream}
            for stream in streams
        }
        cursor.executemany(
            "INSERT INTO tier_streams (tier, stream, id, epochs) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (tier, stream) DO UPDATE SET (id, epochs, at) = (excluded.id, excluded.epochs, now())",
            [
                (self.tier, stream, identity, json.dumps(of_each[stream]))
                for stream, identity in streams.items()
            ],
        )

    def _claim(self, cursor: psycopg.Cursor[Any], epoch: int) -> None:
        """Lock the tier's row until the transaction ends, and take the right to write, unless another's is better."""
        cursor.execute(
            "INSERT INTO tier_epochs (tier, epoch, incarnation) VALUES (%s, %s, %s) ON CONFLICT (tier) DO NOTHING",
            (self.tier, epoch, self.incarnation),
        )
        row = cursor.execute(
            "SELECT epoch, incarnation FROM tier_epochs WHERE tier = %s FOR UPDATE", (self.tier,)
        ).fetchone()
        before, mine = row or (epoch, self.incarnation), (epoch, self.incarnation)
        if before > mine:
            message = (
                f'tier "{self.tier}": incarnation {before[1]} has written by the owner record of epoch {before[0]}; '
                f"{mine[1]}, which has read epoch {mine[0]}, must not write any more (if ZooKeeper's data was lost, and what wrote "
                "is gone for good: take the tier's row out of the table tier_epochs, and start it again)"
            )
            raise FencedError(message)
        if before < mine:
            cursor.execute(
                "UPDATE tier_epochs SET epoch = %s, incarnation = %s, at = now() WHERE tier = %s",
                (*mine, self.tier),
            )

    def _last(self, cursor: psycopg.Cursor[Any]) -> Last | None:
        row = cursor.execute(f"{LAST} LIMIT 1", (self.tier,)).fetchone()
        return None if row is None else Last(*row)

    def _read_marks(self, cursor: psycopg.Cursor[Any]) -> Marks:
        """Return those of the ways that records take as they come."""
        cursor.execute(
            "SELECT path, position FROM marks WHERE tier = %s AND path NOT LIKE %s",
            (self.tier, f"%/{AGAIN}:%"),
        )
        return {path: tuple(position) for path, position in cursor.fetchall()}

    def _read_again(self, cursor: psycopg.Cursor[Any], rows: Rows) -> Marks:
        """Return those of records that were taken up from quarantine: each has a way of its own, so they are kept by PostgreSQL alone."""
        asked = sorted({path for path in rows.paths if is_reprocessed(path)})
        if not asked:
            return {}
        cursor.execute(
            "SELECT path, position FROM marks WHERE tier = %s AND path = ANY(%s)", (self.tier, asked)
        )
        return {path: tuple(position) for path, position in cursor.fetchall()}

    def _raise_marks(self, cursor: psycopg.Cursor[Any], marks: Marks) -> None:
        if marks:
            cursor.executemany(
                "INSERT INTO marks (tier, path, position) VALUES (%s, %s, %s)"
                " ON CONFLICT (tier, path) DO UPDATE SET position = excluded.position",
                [(self.tier, path, list(position)) for path, position in marks.items()],
            )

    def _record(  # noqa: PLR0913 — what the ledger has of a batch
        self,
        cursor: psycopg.Cursor[Any],
        number: int,
        batch: Batch,
        counts: Counts,
        *,
        with_epochs: bool,
        replay: int | None = None,
    ) -> None:
        cursor.execute(
            "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, quarantined, replays,"
            " late, lost, written, replay, with_epochs) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                self.tier,
                self.incarnation,
                number,
                json.dumps(batch.begins),
                json.dumps(batch.ends),
                *counts[:-1],
                replay,
                with_epochs,
            ),
        )


def _counts(records: int, kept: int, written: Written, quarantined: int) -> Counts:
    """Count a batch of so many records. Where one became several, `in` counts rows, and nothing is filtered."""
    rows_in = max(records, kept + quarantined)
    replays = kept - written.new - written.refused - written.lost
    filtered = rows_in - kept - quarantined
    return Counts(
        rows_in, written.new, filtered, quarantined + written.refused, replays, 0, written.lost, written.new
    )


def _absorbed(batch: Batch, absorbed: Absorbed, written: Written) -> Counts:
    """Count a batch of a tier with state: `out` is what the state has taken in, less what it let go of without a partner."""
    late = batch.records - absorbed.taken - absorbed.replays
    kept = absorbed.taken - absorbed.unmatched
    return Counts(
        batch.records, kept, absorbed.unmatched, 0, absorbed.replays, late, 0, written.new, written.refused
    )


def _raised(known: Marks, marks: Marks) -> Marks:
    """Return the marks that are not known yet."""
    return {path: mark for path, mark in marks.items() if known.get(path) != mark}
