"""The base of sinks that write each record into a system outside of the platform, once.

The system has transactions of its own. One contains the rows of a batch and their high-water marks
(`sluice.api.marks`). A crash between its commit and PostgreSQL's brings the rows again, and the
marks say which rows the system has (decisions 93 and 105).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql

from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, SinkAwayError, Written
from sluice.postgres import identity
from sluice.sinks.row_json import as_json


class ReplacedError(Exception):
    """Another writer of the sink has begun, or has written."""


class Writer(Protocol):
    """Writes a sink's batches during one session of PostgreSQL."""

    def write(self, rows: Rows, halt: Event) -> Mapping[int, str]:
        """Write the rows that the system lacks, and their marks, in one transaction of the system.

        Return why the system refuses rows, by their numbers. SinkAwayError if `halt` is set.
        ReplacedError if another writer has begun or written.
        """


_WRITERS: WeakKeyDictionary[psycopg.Connection[Any], dict[str, Writer]] = WeakKeyDictionary()
"""The writers of each session of PostgreSQL, by sink. The ledger opens a new session after each
error, so the next writer reads the marks again.
"""


@dataclass(frozen=True)
class OutsideSink(Sink):
    """Keeps in `<name>_refused` the rows that the system refuses, each with the reason."""

    exactly_once: ClassVar[bool] = True
    away: ClassVar[tuple[type[Exception], ...]]
    """The errors after which the batch is tried again, `ReplacedError` among them."""

    def connect(self, writer: str) -> Writer:
        """Return a new writer, with this name in the system. Errors in `away`."""
        raise NotImplementedError

    def explain(self, error: Exception) -> str:
        """Return where no rows are written, why, and the next step for a person."""
        raise NotImplementedError

    def record(self, rows: Rows, row: int) -> dict[str, Any]:
        """Return the values of a row, by column."""
        return {name: rows.columns[name][row] for name in self.columns}

    @property
    def tables(self) -> Sequence[str]:
        return (f"{self.name}_refused",)

    def statements(self) -> list[sql.Composed]:
        """Return the statement that creates the table of refused records."""
        return [
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (origin text PRIMARY KEY, record jsonb NOT NULL,"
                " reason text NOT NULL, batch bigint NOT NULL,"
                " refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(sql.Identifier(f"{self.name}_refused"))
        ]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Write the new rows that the system lacks, in one of its transactions."""
        new = rows.only(first_seen(marks, rows.paths, rows.origins))
        try:
            try:
                refused = self._writer(cursor).write(new, halt)
            except ReplacedError:
                # A replay beside the tier has written. If instead a successor has ended this
                # session, `_writer` fails, because it asks PostgreSQL first.
                del _WRITERS[cursor.connection][self.name]
                refused = self._writer(cursor).write(new, halt)
        except self.away as error:
            raise SinkAwayError(self.explain(error)) from error
        self._keep(cursor, new, refused, batch)
        return Written(len(new) - len(refused), len(refused))

    def _writer(self, cursor: psycopg.Cursor[Any]) -> Writer:
        """Return the session's writer.

        A session that a successor has ended gets none, because PostgreSQL is asked first.
        """
        writers = _WRITERS.setdefault(cursor.connection, {})
        if self.name not in writers:
            writers[self.name] = self.connect(f"sluice-{self.name}-{identity(cursor)}")
        return writers[self.name]

    def _keep(self, cursor: psycopg.Cursor[Any], rows: Rows, refused: Mapping[int, str], batch: int) -> None:
        """Store refused rows."""
        cursor.executemany(
            sql.SQL(
                "INSERT INTO {} (origin, record, reason, batch) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING"
            ).format(sql.Identifier(f"{self.name}_refused")),
            [
                (rows.origins[row], as_json(self.record(rows, row), nul=""), reason, batch)
                for row, reason in refused.items()
            ],
        )
