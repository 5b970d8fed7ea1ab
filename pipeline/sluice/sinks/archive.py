"""The archive: delivered rows as files, by hour of delivery, each row exactly once.

Batch jobs read the archive. The writer reads rows back from the table, from the batch after the
last archived one on. Before the writer writes files, it stores the last batch of the round in the
table `archived`. The first batch of the round gives the files their name. So a second writer, after
a crash or too late, writes the same files. The files are synced to disk before the database records
their batches as archived. In the same transaction, the rows of a `FileTable` leave the table.

The files are below the home, or in S3 (decision 92). They are Parquet, or JSON lines for
`JsonFiles`. For a `DeltaTable`, a round is one commit (`sluice.sinks.delta`).
"""

import gzip
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeGuard, TypeVar

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from psycopg import sql

from sluice.api.sink import Sink
from sluice.postgres import UNAVAILABLE, Connected
from sluice.s3 import bucket_and_prefix, client
from sluice.sinks.delta import DeltaCommits
from sluice.sinks.table import DeltaTable, FileTable, JsonFiles, RecordTable, without_length
from sluice_ops.site.files import atomic_file
from sluice_ops.site.site_file import S3Config

log = structlog.get_logger()

T = TypeVar("T")
"""The rows of a file."""

EVERY_SECONDS = 30.0
SECONDS = 10.0
"""The longest wait for S3 to connect, or to answer."""
MAX_ROWS = 200_000
"""The most rows of one round, so that a backlog does not fill the driver's memory."""

ARROW_TYPES = {
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
"""Column types that Parquet stores as PostgreSQL does.

All other types (`jsonb`, `numeric`, `uuid`, arrays) are stored as PostgreSQL's text. So all files
have the same types, whatever their values. A `numeric` has no bounds in PostgreSQL and may be NaN.
"""


class Archive(Connected):
    """Writes the rows of one table into its folder."""

    def __init__(self, postgres: str, home: Path, tier: str, table: RecordTable, s3: S3Config) -> None:
        super().__init__(postgres)
        self._tier = tier
        self._table = table
        (folder,) = table.folders
        self._delta = (
            DeltaCommits(table.name, folder, home, s3, SECONDS) if isinstance(table, DeltaTable) else None
        )
        self._put = (
            partial(_upload, client(s3, SECONDS), *bucket_and_prefix(folder))
            if folder.startswith("s3a://")
            else partial(_save, home / "archive" / folder)
        )
        self._wrote = time.monotonic()

    def due(self) -> bool:
        """Tell whether the last write was EVERY_SECONDS ago or more."""
        return time.monotonic() - self._wrote >= EVERY_SECONDS

    def write(self) -> int:
        """Archive the next rows, and return their number.

        If PostgreSQL, the disk or S3 is unavailable, the next call tries again.
        """
        self._wrote = time.monotonic()
        count = 0
        try:
            count = self._round()
        except (*UNAVAILABLE, OSError) as error:
            log.warning(
                "rows are not archived; the next round tries again",
                table=self._table.name,
                error=str(error),
            )
            self.close()
        if count >= MAX_ROWS:
            self._wrote -= EVERY_SECONDS  # more rows wait: the next round is due at once
        return count

    def _round(self) -> int:
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            first, last = self._extent(cursor)
        if last < first:
            return 0
        with connection.transaction(), connection.cursor() as cursor:
            if self._extent(cursor) != (first, last):
                return 0  # another incarnation has archived these batches
            count = self._write_files(cursor, first, last)
            cursor.execute(
                "UPDATE archived SET batch = %s, rows = rows + %s, at = now() WHERE name = %s",
                (last, count, self._table.name),
            )
            if isinstance(self._table, FileTable):
                cursor.execute(
                    sql.SQL("DELETE FROM {} WHERE batch <= %s").format(sql.Identifier(self._table.name)),
                    (last,),
                )
        return count

    def _extent(self, cursor: psycopg.Cursor[Any]) -> tuple[int, int]:
        """Return the first and the last batch of the next round.

        Both stay the same until the round is archived, so that every writer writes the same files.
        """
        name = self._table.name
        cursor.execute(  # a sink that was added later has no rows of the tier's first batches
            sql.SQL(
                "INSERT INTO archived (name, batch) VALUES (%s, coalesce((SELECT min(batch) - 1 FROM {}),"
                " (SELECT max(batch) FROM ledger WHERE tier = %s), -1)) ON CONFLICT DO NOTHING"
            ).format(sql.Identifier(name)),
            (name, self._tier),
        )
        batch, upto = cursor.execute(
            "SELECT batch, upto FROM archived WHERE name = %s FOR UPDATE", (name,)
        ).fetchone() or (-1, None)
        if upto is None or upto <= batch:
            cursor.execute(
                "SELECT max(batch) FROM"
                " (SELECT batch, sum(rows_out) OVER (ORDER BY batch) - rows_out AS before FROM ledger"
                " WHERE tier = %s AND batch > %s) AS next WHERE before < %s",
                (self._tier, batch, MAX_ROWS),
            )
            (upto,) = cursor.fetchone() or (None,)
            cursor.execute("UPDATE archived SET upto = %s WHERE name = %s", (upto, name))
        return int(batch) + 1, int(batch if upto is None else upto)

    def _write_files(self, cursor: psycopg.Cursor[Any], first: int, last: int) -> int:
        table = self._table
        sql_types = {**table.columns, table.stamp: "timestamptz", "origin": "text", "batch": "bigint"}
        if isinstance(table, JsonFiles):
            lines = self._rows_by_hour(cursor, [_json_line(sql_types)], first, last)
            return self._put_files(lines, _write_json, f"from-{first:012d}.jsonl.gz")
        types = {
            name: ARROW_TYPES.get(without_length(sql_type).lower(), pa.string())
            for name, sql_type in sql_types.items()
        }
        columns = [
            sql.SQL("{}::text" if arrow_type == pa.string() else "{}").format(sql.Identifier(name))
            for name, arrow_type in types.items()
        ]
        tables = {
            hour: pa.table(
                {name: pa.array([row[i] for row in rows], types[name]) for i, name in enumerate(types)}
            )
            for hour, rows in self._rows_by_hour(cursor, columns, first, last).items()
        }
        if self._delta is not None:
            return self._delta.append(tables, first, last) if tables else 0
        return self._put_files(tables, _write_parquet, f"from-{first:012d}.parquet")

    def _rows_by_hour(
        self, cursor: psycopg.Cursor[Any], columns: Sequence[sql.Composable], first: int, last: int
    ) -> dict[str, list[tuple[Any, ...]]]:
        """Return the columns of the rows of batches, by hour of delivery."""
        cursor.execute("SET LOCAL timezone = 'UTC'")  # in texts and JSON
        stamp = sql.Identifier(self._table.stamp)
        query = sql.SQL(
            "SELECT to_char({0}, 'YYYY-MM-DD-HH24'), {1} FROM {2}"
            " WHERE batch BETWEEN %s AND %s ORDER BY batch, {0}"
        ).format(stamp, sql.SQL(", ").join(columns), sql.Identifier(self._table.name))
        hours: dict[str, list[tuple[Any, ...]]] = {}
        for hour, *row in cursor.execute(query, (first, last)):
            hours.setdefault(hour, []).append(tuple(row))
        return hours

    def _put_files(self, hours: Mapping[str, T], write: Callable[[T, IO[bytes]], int], name: str) -> int:
        """Write a file for each hour, and return the number of rows in the files."""
        return sum(self._put(f"hour={hour}/{name}", partial(write, rows)) for hour, rows in hours.items())


def has_archive(sink: Sink) -> TypeGuard[RecordTable]:
    """Tell whether an `Archive` writes the sink's rows into files."""
    return isinstance(sink, RecordTable) and bool(sink.folders)


def _json_line(sql_types: Mapping[str, str]) -> sql.Composed:
    """Return the SQL of a row as one line of JSON, with Base64 for bytes."""
    fields = [
        sql.SQL(
            "translate(encode({0}, 'base64'), E'\\n', '') AS {0}" if kind.lower() == "bytea" else "{0}"
        ).format(sql.Identifier(name))
        for name, kind in sql_types.items()
    ]
    # a value of type json may have line breaks between its parts, but not within texts
    return sql.SQL(
        "translate((SELECT row_to_json(line.*)::text FROM (SELECT {}) AS line), E'\\n\\r', '  ')"
    ).format(sql.SQL(", ").join(fields))


def _write_json(rows: Sequence[tuple[str]], file: IO[bytes]) -> int:
    """Write lines as a gzip file, and return the number of lines that the file has.

    A second writer's file has the same bytes, for it names no time.
    """
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.writelines(f"{line}\n".encode() for (line,) in rows)
    file.seek(0)
    with gzip.GzipFile(fileobj=file) as packed:
        return sum(1 for _ in packed)


def _write_parquet(rows: pa.Table, file: IO[bytes]) -> int:
    """Write a Parquet file, and return the number of rows in its footer."""
    pq.write_table(rows, file)
    return int(pq.read_metadata(file).num_rows)


def _save(folder: Path, name: str, write: Callable[[IO[bytes]], int]) -> int:
    """Write a file that readers see once it is complete, and return the number of its rows."""
    with atomic_file(folder / name) as unfinished, unfinished.open("w+b") as file:
        return write(file)


def _upload(s3: Any, bucket: str, folder: str, name: str, write: Callable[[IO[bytes]], int]) -> int:
    """Upload a file, which S3 shows once it is complete, and return the number of its rows.

    OSError if S3 does not take the file.
    """
    from boto3.exceptions import Boto3Error  # noqa: PLC0415 — takes half a second, only for S3
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    with tempfile.TemporaryFile() as file:
        count = write(file)
        file.seek(0)
        try:
            s3.upload_fileobj(file, bucket, f"{folder}/{name}")
        except (Boto3Error, BotoCoreError, ClientError) as error:
            message = f"s3a://{bucket}/{folder} takes no file: {error}"
            raise OSError(message) from error
    return count
