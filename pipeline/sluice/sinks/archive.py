"""The archive: delivered rows as Parquet, by hour of delivery, each exactly once; what batch jobs read.

Rows are read back from the table, from the batch after the last archived one on. Up to which batch is written down before, and a file is
named by the first one: whoever writes it again, after a crash or too late, writes the same. A file outlives a loss of power before the
database says that its batches are archived.
"""

import time
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from psycopg import sql

from sluice.postgres import AWAY, Connected
from sluice.sinks.table import Once, loose
from sluice_ops.site.files import whole

log = structlog.get_logger()

EVERY_SECONDS = 30.0
ROWS = 200_000
"""The most rows of one round, so that a backlog does not fill the driver's memory."""

ARROW = {
    **dict.fromkeys(("smallint", "int2"), pa.int16()),
    **dict.fromkeys(("integer", "int", "int4"), pa.int32()),
    **dict.fromkeys(("bigint", "int8"), pa.int64()),
    **dict.fromkeys(("real", "float4"), pa.float32()),
    **dict.fromkeys(("double precision", "float8"), pa.float64()),
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    "bytea": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp without time zone"), pa.timestamp("us")),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), pa.timestamp("us", tz="UTC")),
}
"""Types that a file has as PostgreSQL has them; all others (`jsonb`, `numeric`, `uuid`, arrays) it has as PostgreSQL writes them, as text.

So every file has the same ones, whatever values are in it. A `numeric` has no bounds in PostgreSQL, and may be no number at all."""


class Archive(Connected):
    """Writes one table's rows below `archive/`."""

    def __init__(self, postgres: str, home: Path, tier: str, table: Once) -> None:
        """Prepare; nothing is opened yet."""
        super().__init__(postgres)
        self._tier = tier
        self._table = table
        self._folder = home / "archive" / str(table.archive)
        self._wrote = time.monotonic()

    def due(self) -> bool:
        """Tell whether it is time."""
        return time.monotonic() - self._wrote >= EVERY_SECONDS

    def write(self) -> int:
        """Archive the next rows, if there are any, and return how many; a database that is away is tried again next time."""
        self._wrote = time.monotonic()
        count = 0
        try:
            count = self._round()
        except (*AWAY, OSError) as error:
            log.warning("the archive is written later", error=str(error))
            self.close()
        if count >= ROWS:
            self._wrote -= EVERY_SECONDS  # there are more: once the driver has looked what it is told
        return count

    def _round(self) -> int:
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            first, last = self._extent(cursor)
        if last < first:
            return 0
        with connection.transaction(), connection.cursor() as cursor:
            if self._extent(cursor) != (first, last):
                return 0  # another has written it
            count = self._files(cursor, first, last)
            cursor.execute(
                "UPDATE archived SET batch = %s, at = now() WHERE name = %s", (last, self._table.name)
            )
        return count

    def _extent(self, cursor: psycopg.Cursor[Any]) -> tuple[int, int]:
        """Return the first and the last batch that are next, the same until they are archived: so every writer's file is the same."""
        name = self._table.name
        cursor.execute("INSERT INTO archived (name, batch) VALUES (%s, -1) ON CONFLICT DO NOTHING", (name,))
        batch, upto = cursor.execute(
            "SELECT batch, upto FROM archived WHERE name = %s FOR UPDATE", (name,)
        ).fetchone() or (-1, None)
        if upto is None or upto <= batch:
            cursor.execute(
                "SELECT max(batch) FROM (SELECT batch, sum(rows_out) OVER (ORDER BY batch) - rows_out AS before FROM ledger"
                " WHERE tier = %s AND batch > %s) AS next WHERE before < %s",
                (self._tier, batch, ROWS),
            )
            (upto,) = cursor.fetchone() or (None,)
            cursor.execute("UPDATE archived SET upto = %s WHERE name = %s", (upto, name))
        return int(batch) + 1, int(batch if upto is None else upto)

    def _files(self, cursor: psycopg.Cursor[Any], first: int, last: int) -> int:
        kinds = {**self._table.columns, self._table.stamp: "timestamptz", "origin": "text", "batch": "bigint"}
        names, types = (
            [*kinds],
            {name: ARROW.get(loose(kind).lower(), pa.string()) for name, kind in kinds.items()},
        )
        cursor.execute(
            sql.SQL("SELECT {} FROM {} WHERE batch BETWEEN %s AND %s ORDER BY batch, {}").format(
                sql.SQL(", ").join(
                    sql.SQL("{}::text" if types[name] == pa.string() else "{}").format(sql.Identifier(name))
                    for name in names
                ),
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
                pa.table(
                    {name: pa.array([row[i] for row in rows], types[name]) for i, name in enumerate(names)}
                ),
            )
        return count

    def _put(self, path: Path, rows: pa.Table) -> None:
        with whole(path) as unfinished:
            pq.write_table(rows, unfinished)
