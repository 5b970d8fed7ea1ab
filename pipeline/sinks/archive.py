"""The archive: delivered rows as Parquet, by hour of delivery, each exactly once; what batch jobs read.

Rows are read back from the table, from the batch after the last archived one on. A file is named by that first batch, so that writing it
again after a crash overwrites it.
"""

import os
import time
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from psycopg import sql

from pipeline.sinks.table import Once

log = structlog.get_logger()

EVERY_SECONDS = 30.0
ROWS = 200_000
"""The most rows of one round, so that a backlog does not fill the driver's memory."""


class Archive:
    """Writes one table's rows below `archive/`."""

    def __init__(self, postgres: str, home: Path, tier: str, table: Once) -> None:
        """Prepare; nothing is opened yet."""
        self._postgres = postgres
        self._tier = tier
        self._table = table
        self._folder = home / "archive" / str(table.archive)
        self._wrote = time.monotonic()
        self._connection: psycopg.Connection[Any] | None = None

    def due(self) -> bool:
        """Tell whether it is time."""
        return time.monotonic() - self._wrote >= EVERY_SECONDS

    def write(self) -> int:
        """Archive every batch that is in the ledger; return the rows. A database that is away is tried again next time."""
        self._wrote = time.monotonic()
        total = 0
        try:
            while rows := self._round():
                total += rows
        except (psycopg.OperationalError, OSError) as error:
            log.warning("the archive is written later", error=str(error))
            self.close()
        return total

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _round(self) -> int:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._postgres, autocommit=True, connect_timeout=5)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("INSERT INTO archived (name, batch) VALUES (%s, -1) ON CONFLICT DO NOTHING", (self._table.name,))
            row = cursor.execute("SELECT batch FROM archived WHERE name = %s FOR UPDATE", (self._table.name,)).fetchone()
            first = (int(row[0]) if row else -1) + 1
            cursor.execute(
                "SELECT max(batch) FROM (SELECT batch, sum(rows_out) OVER (ORDER BY batch) - rows_out AS before FROM ledger"
                " WHERE tier = %s AND batch >= %s) AS next WHERE before < %s",
                (self._tier, first, ROWS),
            )
            found = cursor.fetchone()
            if found is None or found[0] is None:
                return 0
            count = self._files(cursor, first, int(found[0]))
            cursor.execute("UPDATE archived SET batch = %s, at = now() WHERE name = %s", (found[0], self._table.name))
        return max(count, 1)

    def _files(self, cursor: psycopg.Cursor[Any], first: int, last: int) -> int:
        names = [*self._table.columns, self._table.stamp, "origin", "batch"]
        cursor.execute(
            sql.SQL("SELECT {} FROM {} WHERE batch BETWEEN %s AND %s ORDER BY batch, {}").format(
                sql.SQL(", ").join(sql.Identifier(name) for name in names),
                sql.Identifier(self._table.name),
                sql.Identifier(self._table.stamp),
            ),
            (first, last),
        )
        hours: dict[str, list[tuple[Any, ...]]] = {}
        stamp = names.index(self._table.stamp)
        count = 0
        for row in cursor:
            hours.setdefault(row[stamp].astimezone(UTC).strftime("%Y-%m-%d-%H"), []).append(row)
            count += 1
        for hour, rows in hours.items():
            self._put(
                self._folder / f"hour={hour}" / f"from-{first:012d}.parquet",
                pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}),
            )
        return count

    def _put(self, path: Path, rows: pa.Table) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            pq.write_table(rows, unfinished)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
