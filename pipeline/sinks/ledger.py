"""The transaction of a batch: rows, marks, ledger row and the fence, all of it or nothing. Called by the driver of a tier with a table."""

import json
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from pipeline.sinks.marks import Marks
from pipeline.sinks.sink import Rows, Sink, Written

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_epochs (tier text PRIMARY KEY, incarnation bigint NOT NULL, query text NOT NULL,"
        " at timestamptz NOT NULL DEFAULT now())"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS ledger (tier text, incarnation bigint NOT NULL, batch bigint, begins jsonb NOT NULL,"
        " ends jsonb NOT NULL, rows_in bigint NOT NULL, rows_out bigint NOT NULL, filtered bigint NOT NULL,"
        " quarantined bigint NOT NULL, replays bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),"
        " PRIMARY KEY (tier, batch), CHECK (rows_in = rows_out + filtered + quarantined + replays))"
    ),
    sql.SQL("CREATE INDEX IF NOT EXISTS ledger_at ON ledger (tier, at)"),
    sql.SQL("CREATE TABLE IF NOT EXISTS marks (tier text, path text, position bigint[] NOT NULL, PRIMARY KEY (tier, path))"),
    sql.SQL(  # a position was an offset and one index, before records could become several more than once on their way
        "DO $$ BEGIN IF EXISTS (SELECT FROM information_schema.columns WHERE table_name = 'marks' AND column_name = 'index') THEN"
        ' ALTER TABLE marks ADD COLUMN position bigint[]; UPDATE marks SET position = ARRAY["offset", index];'
        ' ALTER TABLE marks ALTER COLUMN position SET NOT NULL, DROP COLUMN "offset", DROP COLUMN index; END IF; END $$'
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS tier_progress (tier text PRIMARY KEY, incarnation bigint NOT NULL, at timestamptz NOT NULL,"
        " rate_in float8 NOT NULL, rate_out float8 NOT NULL, lag bigint NOT NULL, latency_ms float8,"
        " slots jsonb NOT NULL, details jsonb NOT NULL)"
    ),
    sql.SQL("CREATE TABLE IF NOT EXISTS archived (name text PRIMARY KEY, batch bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())"),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS campaign_daily (day date, campaign text, views bigint NOT NULL, clicks bigint NOT NULL,"
        " buys bigint NOT NULL, PRIMARY KEY (day, campaign))"
    ),
)
"""Tables of the platform itself; `pipeline.publish` creates them."""


class FencedError(Exception):
    """A newer incarnation has written: this one must not."""


class CheckpointError(Exception):
    """The checkpoint is not the one that the ledger knows."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch as the checkpoint has it."""

    number: int
    query: str
    """The query's id, which lives as long as the checkpoint."""
    begins: dict[str, int]
    ends: dict[str, int]

    @property
    def records(self) -> int:
        """How many records it reads."""
        return sum(end - self.begins.get(partition, 0) for partition, end in self.ends.items())


@dataclass
class Ledger:
    """Writes the batches of one incarnation of a tier."""

    postgres: str
    tier: str
    incarnation: int
    sink: Sink
    _connection: psycopg.Connection[Any] | None = None
    _marks: Marks | None = field(default=None)

    def write(self, batch: Batch, rows: Rows, *, quarantined: int = 0) -> int:
        """Write a batch, unless it is written already; return the rows that were new."""
        try:
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                if not self._claim(cursor, batch):
                    return 0
                marks = dict(self._marks if self._marks is not None else self._read_marks(cursor))
                before = dict(marks)
                written = self.sink.write(cursor, rows, batch.number, marks)
                self._raise_marks(cursor, {path: mark for path, mark in marks.items() if before.get(path) != mark})
                self._record(cursor, batch, len(rows), written, quarantined)
            self._marks = marks
        except BaseException:
            self.close()
            raise
        return written.new

    def last(self) -> tuple[int, float] | None:
        """Return number and time of the tier's last batch."""
        row = (
            self._open()
            .execute("SELECT batch, extract(epoch FROM at) FROM ledger WHERE tier = %s ORDER BY batch DESC LIMIT 1", (self.tier,))
            .fetchone()
        )
        return (int(row[0]), float(row[1])) if row else None

    def query(self) -> str | None:
        """Return the id of the query that has written before."""
        row = self._open().execute("SELECT query FROM tier_epochs WHERE tier = %s", (self.tier,)).fetchone()
        return str(row[0]) if row else None

    def close(self) -> None:
        """Give the connection back; the next write opens a new one, and reads the marks again."""
        self._marks = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.postgres, autocommit=True, connect_timeout=5)
        return self._connection

    def _claim(self, cursor: psycopg.Cursor[Any], batch: Batch) -> bool:
        cursor.execute(
            "INSERT INTO tier_epochs (tier, incarnation, query) VALUES (%s, %s, %s) ON CONFLICT (tier) DO NOTHING",
            (self.tier, self.incarnation, batch.query),
        )
        row = cursor.execute("SELECT incarnation, query FROM tier_epochs WHERE tier = %s FOR UPDATE", (self.tier,)).fetchone()
        incarnation, query = row or (self.incarnation, batch.query)
        if incarnation > self.incarnation:
            message = f'tier "{self.tier}": incarnation {incarnation} has written; {self.incarnation} must not write any more'
            raise FencedError(message)
        if query != batch.query:
            message = (
                f'tier "{self.tier}": its checkpoint is a new one, and {self.sink.name} was written from another; '
                f"restore the checkpoint, or, to begin again on purpose, delete the tier's row in tier_epochs and its rows in ledger"
            )
            raise CheckpointError(message)
        if incarnation < self.incarnation:
            cursor.execute("UPDATE tier_epochs SET incarnation = %s, at = now() WHERE tier = %s", (self.incarnation, self.tier))
        cursor.execute("SELECT 1 FROM ledger WHERE tier = %s AND batch = %s", (self.tier, batch.number))
        return cursor.fetchone() is None

    def _read_marks(self, cursor: psycopg.Cursor[Any]) -> Marks:
        cursor.execute("SELECT path, position FROM marks WHERE tier = %s", (self.tier,))
        return {path: tuple(position) for path, position in cursor.fetchall()}

    def _raise_marks(self, cursor: psycopg.Cursor[Any], marks: Marks) -> None:
        if marks:
            cursor.executemany(
                "INSERT INTO marks (tier, path, position) VALUES (%s, %s, %s)"
                " ON CONFLICT (tier, path) DO UPDATE SET position = excluded.position",
                [(self.tier, path, list(position)) for path, position in marks.items()],
            )

    def _record(self, cursor: psycopg.Cursor[Any], batch: Batch, kept: int, written: Written, quarantined: int) -> None:
        # one record may become several rows: then `in` counts rows, and nothing is filtered
        counted = max(batch.records, kept + quarantined)
        cursor.execute(
            "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, quarantined, replays)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                self.tier, self.incarnation, batch.number, json.dumps(batch.begins), json.dumps(batch.ends),
                counted, written.new, counted - kept - quarantined, quarantined + written.refused, kept - written.new - written.refused,
            ),
        )  # fmt: skip
