"""Tables that a tier writes, batch by batch, in one transaction with the ledger row.

Replays change nothing.

- `Once` stores each record once: the record's origin is the primary key.
- `ParquetFiles`, `JsonFiles` and `DeltaTable` do so until a file has the record
  (`sluice.sinks.archive`).
- `Totals` adds records up: a high-water mark for each path tells replays from new records
  (`sluice.api.marks`).
- `Latest` keeps the newest row of each key, for tiers with state.

`sluice.sinks.ledger` has the transaction.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from threading import Event
from typing import Any, ClassVar

import psycopg
import structlog
from psycopg import sql

from sluice.api.declarations import DeclarationError
from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, SinkAwayError, Unfit, Written
from sluice.postgres import index
from sluice.sinks import outbox
from sluice.sinks.refused import find_refused
from sluice.sinks.row_json import as_json

log = structlog.get_logger()

FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
BUCKET_FOLDER = re.compile(r"s3a://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)+")
HOUR = "hour"
"""The column by which files are divided: the hour of delivery."""
LONGEST_WAIT_SECONDS = 600.0
"""How long a row may wait for its file; then the sink takes no more rows."""
TIME_TYPES = frozenset(
    {"date", "timestamp", "timestamp without time zone", "timestamptz", "timestamp with time zone"}
)
"""Types of times: files have those of the years 1 to 9999, as Python has."""
LENGTH_SUFFIX = re.compile(r"\s*\([^)]*\)")
DEFAULT_LENGTH_ONE = dict.fromkeys(
    ("char", "character", "nchar", "national char", "national character"), "bpchar"
) | {"bit": '"bit"'}
"""Types with the default length 1, and PostgreSQL's names for them without a length."""


def without_length(sql_type: str) -> str:
    """Return a type without its length. Pure.

    A cast to this type cuts nothing off, so the column itself refuses values that are too long.
    """
    bare = " ".join(LENGTH_SUFFIX.sub("", sql_type).split())
    return DEFAULT_LENGTH_ONE.get(bare.lower(), bare)


def definition(name: str, columns: Mapping[str, str], more: Sequence[sql.Composable]) -> list[sql.Composed]:
    """Return the SQL that makes a table, and adds those of `columns` that are missing.

    `more` is only part of a new table.
    """
    table = sql.Identifier(name)
    typed = [sql.Identifier(column) + sql.SQL(f" {sql_type}") for column, sql_type in columns.items()]
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, sql.SQL(", ").join([*typed, *more]))
    # ALTER TABLE waits for all readers of the table, and all writers wait behind ALTER TABLE.
    # So it runs only if the column is missing.
    migrate = [
        sql.SQL(
            "DO $$ BEGIN IF NOT EXISTS"
            " (SELECT FROM pg_attribute WHERE attrelid = {}::regclass AND attname = {}"
            " AND NOT attisdropped)"
            " THEN ALTER TABLE {} ADD COLUMN {}; END IF; END $$"
        ).format(sql.Literal(table.as_string()), sql.Literal(column), table, with_type)
        for column, with_type in zip(columns, typed, strict=True)
    ]
    return [create, *migrate]


def primary_key(columns: Sequence[str]) -> sql.Composed:
    """Return the SQL of a primary key, for `definition`."""
    return sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, columns)))


INTEGER_TYPES = ("smallint", "integer", "int", "bigint")


@dataclass(frozen=True)
class Table(Sink):
    transactional: ClassVar[bool] = True

    def _typed_lists(self) -> sql.Composed:
        return sql.SQL(", ").join(
            sql.SQL("%s::") + sql.SQL(without_length(sql_type) + "[]") for sql_type in self.columns.values()
        )

    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(name) for name in self.columns)

    @staticmethod
    def _upsert(
        cursor: psycopg.Cursor[Any], statement: sql.Composed, columns: Sequence[Sequence[Any]]
    ) -> None:
        """Insert or update rows by their keys, in one statement if possible.

        Keys that differ in the batch may be equal in the table: a number that the column rounds, or
        spaces at the end of a `char(n)`. PostgreSQL then refuses one statement, and the rows are
        written one after the other.
        """
        try:
            with cursor.connection.transaction():
                cursor.execute(statement, [list(column) for column in columns])
        except psycopg.errors.CardinalityViolation:
            cursor.executemany(statement, [[[value] for value in row] for row in zip(*columns, strict=True)])


@dataclass(frozen=True)
class RecordTable(Table):
    """A table with one row for each record, and the row's time, origin and batch."""

    stamp: str = "written_at"
    """The column with the time when the row was written."""

    @property
    def indexes(self) -> Sequence[str]:
        return (*super().indexes, f"{self.name}_batch")

    def statements(self) -> list[sql.Composed]:
        """Return the SQL of the table, with columns for the time, origin and batch of each row."""
        stamp = sql.Identifier(self.stamp) + sql.SQL(" timestamptz NOT NULL DEFAULT clock_timestamp()")
        more_columns = [stamp, sql.SQL("origin text PRIMARY KEY"), sql.SQL("batch bigint NOT NULL")]
        return [
            *definition(self.name, self.columns, more_columns),
            index(f"{self.name}_batch", self.name, "(batch)"),
        ]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Insert the rows. A row whose origin is in the table already is a replay."""
        del marks, halt
        insert = sql.SQL(
            "INSERT INTO {table} ({names}, origin, batch)"
            " SELECT {values}, origin, {batch}"
            " FROM unnest({typed}, %s::text[]) AS new_rows ({names}, origin)"
            " ON CONFLICT (origin) DO NOTHING"
        ).format(
            table=sql.Identifier(self.name),
            names=self._names(),
            values=sql.SQL(", ").join(self._value(name, kind) for name, kind in self.columns.items()),
            typed=self._typed_lists(),
            batch=sql.Literal(batch),
        )
        cursor.execute(insert, [*(list(rows.columns[name]) for name in self.columns), list(rows.origins)])
        return Written(cursor.rowcount)

    def _value(self, name: str, sql_type: str) -> sql.Composable:
        """Return the SQL of a column's new value.

        PostgreSQL refuses a time that no file could hold: the cast of a text that says so fails.
        """
        column = sql.Identifier("new_rows", name)
        bare = without_length(sql_type)
        if not self.folders or bare.lower() not in TIME_TYPES:
            return column
        checked = (
            "CASE WHEN {0} NOT BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00'"
            " THEN ({0} || ' is before the year 1 or after 9999')::"
        )
        return sql.SQL(checked + bare + " ELSE {0} END").format(column)


@dataclass(frozen=True)
class Once(RecordTable):
    """A table with each record exactly once."""

    archive: str | None = None
    """The folder below `archive/` that gets the same rows as Parquet files, by hour."""

    def __post_init__(self) -> None:
        """Raise DeclarationError if `archive` could lead to another folder."""
        if self.archive is not None and not FOLDER.fullmatch(self.archive):
            message = (
                f'sink "{self.name}": archive is {self.archive!r}; '
                "name one folder, of letters, digits, _, . and -"
            )
            raise DeclarationError(message)

    @property
    def folders(self) -> Sequence[str]:
        return () if self.archive is None else (self.archive,)


@dataclass(frozen=True)
class FileTable(RecordTable):
    """A table whose rows leave once a file has them."""

    folder: str = field(kw_only=True)
    """A folder below `archive/` in the home, such as `clicks`; or `s3a://bucket/folder`."""

    def __post_init__(self) -> None:
        """Raise DeclarationError if `folder` is neither."""
        if not FOLDER.fullmatch(self.folder) and not BUCKET_FOLDER.fullmatch(self.folder):
            message = (
                f'sink "{self.name}": folder is {self.folder!r}; name one folder below `archive/`, '
                "of letters, digits, _, . and -, or an address s3a://bucket/folder"
            )
            raise DeclarationError(message)

    @property
    def folders(self) -> Sequence[str]:
        return (self.folder,)

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Insert the rows that are new by their marks: rows that a file has leave the table.

        SinkAwayError if rows have waited too long for a file, so that PostgreSQL does not fill up.
        """
        oldest = sql.SQL(
            "SELECT extract(epoch FROM clock_timestamp() - {})::float8 FROM {} ORDER BY batch LIMIT 1"
        ).format(sql.Identifier(self.stamp), sql.Identifier(self.name))
        (waited,) = cursor.execute(oldest).fetchone() or (0.0,)
        if waited > LONGEST_WAIT_SECONDS:
            message = (
                f"rows of sink {self.name} have waited {waited / 60:.0f} minutes for a file in "
                f"{self.folder}, and no more rows are taken until the file is written; "
                "the log of the tier's driver (`sluice logs TIER`) says why files are not written"
            )
            raise SinkAwayError(message)
        new = first_seen(marks, rows.paths, rows.origins)
        return super().write(cursor, rows.only(new), batch, marks, halt)


@dataclass(frozen=True)
class ParquetFiles(FileTable):
    """Parquet files with each record exactly once, in one folder for each hour of delivery.

    A file appears about every 30 s. Until then, the table `name` in PostgreSQL has its rows.
    """


@dataclass(frozen=True)
class JsonFiles(FileTable):
    """Files of JSON lines, packed with gzip, with each record exactly once, in one folder for each
    hour of delivery.

    A file appears about every 30 s. Until then, the table `name` in PostgreSQL has its rows.
    """


@dataclass(frozen=True)
class DeltaTable(FileTable):
    """A Delta table with each record exactly once, with the hour of delivery in the column `hour`.

    A commit appears about every 30 s. Until then, the table `name` in PostgreSQL has its rows.
    """

    def __post_init__(self) -> None:
        """Raise DeclarationError if `folder` is wrong, or `columns` has a column `hour`."""
        super().__post_init__()
        wrong = None
        if HOUR in self.columns:
            wrong = f"the column {HOUR} is that of the hour of delivery; rename yours"
        elif find_spec("deltalake") is None:
            wrong = (
                "the package deltalake is not installed here: install Sluice with the extra `delta`, "
                "here and on every host"
            )
        if wrong is not None:
            message = f'sink "{self.name}": {wrong}'
            raise DeclarationError(message)


@dataclass(frozen=True)
class Totals(Table):
    """A table with numbers added up by key."""

    key: tuple[str, ...] = field(default=())
    counted: tuple[str, ...] = field(default=())
    """Columns of whole numbers; each row adds one to their sum.

    PostgreSQL keeps the total of these columns, and the audit compares it with the ledger. Without
    `counted`, the audit does not check the rows of this table.
    """

    def __post_init__(self) -> None:
        """Raise DeclarationError if a column of `counted` is in the key or no whole number."""
        not_countable = [
            name
            for name in self.counted
            if name in self.key or self.columns.get(name, "").lower() not in INTEGER_TYPES
        ]
        if not_countable:
            message = (
                f'sink "{self.name}": counted names {", ".join(not_countable)}; '
                f"name columns of type {', '.join(INTEGER_TYPES)} that are not in its key"
            )
            raise DeclarationError(message)

    @property
    def keys(self) -> Sequence[str]:
        return self.key

    def statements(self) -> list[sql.Composed]:
        """Return the SQL of the table, with `key` as its primary key."""
        return [
            *definition(self.name, self.columns, [primary_key(self.key)]),
            *(self._total_trigger() if self.counted else []),
        ]

    def _total_trigger(self) -> list[sql.Composed]:
        """Return a trigger that keeps the total of the counted columns, whichever client writes.

        So the audit need not add up the whole table.
        """
        row_sum = sql.SQL(" + ").join(
            sql.SQL("coalesce({}, 0)::bigint").format(sql.Identifier(name)) for name in self.counted
        )
        table, function = sql.Identifier(self.name), sql.Identifier(f"{self.name}_added_up")
        name, total = sql.Literal(self.name), sql.SQL("(SELECT coalesce(sum({}), 0) FROM {})")
        statements = [
            sql.SQL("INSERT INTO added_up (name) VALUES ({}) ON CONFLICT DO NOTHING").format(name),
            sql.SQL(
                "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " UPDATE added_up SET added = added + {new} WHERE name = {name};"
                " IF TG_OP = 'UPDATE' THEN"
                " UPDATE added_up SET added = added - {old} WHERE name = {name}; END IF;"
                " RETURN NULL; END $$"
            ).format(
                function=function,
                name=name,
                new=total.format(row_sum, sql.SQL("rows_after")),
                old=total.format(row_sum, sql.SQL("rows_before")),
            ),
        ]
        for event, rows in (
            ("INSERT", "NEW TABLE AS rows_after"),
            ("UPDATE", "OLD TABLE AS rows_before NEW TABLE AS rows_after"),
        ):
            trigger = f"{self.name}_added_up_{event.lower()}"
            statements.append(
                sql.SQL(  # like ALTER TABLE, only if the trigger is missing
                    "DO $$ BEGIN IF NOT EXISTS"
                    " (SELECT FROM pg_trigger WHERE tgrelid = {}::regclass AND tgname = {}) THEN"
                    " CREATE TRIGGER {} AFTER {} ON {} REFERENCING {}"
                    " FOR EACH STATEMENT EXECUTE FUNCTION {}(); END IF; END $$"
                ).format(
                    sql.Literal(table.as_string()),
                    sql.Literal(trigger),
                    sql.Identifier(trigger),
                    sql.SQL(event),
                    table,
                    sql.SQL(rows),
                    function,
                )
            )
        return statements

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Add up the rows that are new by their marks; null adds nothing."""
        del batch, halt
        numbers = [name for name in self.columns if name not in self.key]
        sums: dict[tuple[Any, ...], list[int]] = {}
        new = first_seen(marks, rows.paths, rows.origins)
        fresh = rows if len(new) == len(rows) else rows.only(new)
        added_columns = [fresh.columns[name] for name in numbers]
        for row, key in enumerate(zip(*(fresh.columns[name] for name in self.key), strict=True)):
            total = sums.setdefault(key, [0] * len(numbers))
            for position, column in enumerate(added_columns):
                if value := column[row]:
                    total[position] += value
        if sums:
            ordered = sorted(sums.items(), key=lambda item: str(item[0]))
            lists: dict[str, list[Any]] = {
                name: [item[0][i] for item in ordered] for i, name in enumerate(self.key)
            }
            lists |= {name: [item[1][i] for item in ordered] for i, name in enumerate(numbers)}
            table = sql.Identifier(self.name)
            added = [
                sql.SQL("{0} = {1}.{0} + excluded.{0}").format(sql.Identifier(name), table)
                for name in numbers
            ]
            upsert = sql.SQL(
                "INSERT INTO {table} ({names}) SELECT * FROM unnest({typed})"
                " ON CONFLICT ({key}) DO UPDATE SET {added}"
            ).format(
                table=table,
                names=self._names(),
                typed=self._typed_lists(),
                key=sql.SQL(", ").join(sql.Identifier(name) for name in self.key),
                added=sql.SQL(", ").join(added),
            )
            self._upsert(cursor, upsert, [lists[name] for name in self.columns])
        return Written(len(new))


@dataclass(frozen=True)
class Latest(Table):
    """A table with the newest row of each key: the results of a tier with state.

    Decision 16 has the reasons.

    A row that PostgreSQL refuses comes from many records, so no record can go to quarantine. The
    table `<name>_refused` keeps the newest refused row of each key. The key keeps its older row.

    If the tier has an output stream, each row that changes the table goes there, too
    (`sluice.sinks.outbox`).
    """

    replaces: ClassVar[bool] = True

    key: tuple[str, ...] = field(default=())
    """Columns that are never null."""

    @property
    def tables(self) -> Sequence[str]:
        return (self.name, f"{self.name}_refused")

    @property
    def indexes(self) -> Sequence[str]:
        return (*super().indexes, f"{self.name}_batch")

    def statements(self) -> list[sql.Composed]:
        """Return the SQL of the table, with key and batch, and of its table of refused rows."""
        more_columns = [sql.SQL("batch bigint NOT NULL"), primary_key(self.key)]
        refused_rows = sql.SQL(  # `key` is the key's hash, because the key itself may be too long
            "CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY, record jsonb NOT NULL,"
            " reason text NOT NULL, batch bigint NOT NULL,"
            " refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        ).format(self._refused)
        return [
            *definition(self.name, self.columns, more_columns),
            index(f"{self.name}_batch", self.name, "(batch)"),
            refused_rows,
        ]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Write each row in place of its key's older row, and keep the refused rows."""
        del marks, halt
        records = list(zip(*(rows.columns[name] for name in self.columns), strict=True))
        why = {
            row: str(value)
            for row, record in enumerate(records)
            for value in record
            if isinstance(value, Unfit)
        }
        why |= outbox.refused(rows.records)
        changed: list[int] = []

        def write(numbers: Sequence[int]) -> None:
            if numbers:
                columns = list(zip(*(records[row] for row in numbers), strict=True))
                with cursor.connection.transaction():
                    changed_rows = self._replace(cursor, batch, columns, numbers if rows.records else ())
                changed.extend(changed_rows)

        why |= find_refused([row for row in range(len(records)) if row not in why], write)
        self._keep_refused(
            cursor,
            [(dict(zip(self.columns, records[row], strict=True)), reason) for row, reason in why.items()],
            batch,
        )
        # Several rows of the batch may have keys that are equal in the table.
        cursor.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE batch = %s").format(sql.Identifier(self.name)), (batch,)
        )
        (written,) = cursor.fetchone() or (0,)
        outbox.put(cursor, self.name, [rows.records[row] for row in sorted(changed)])
        return Written(int(written), len(why))

    @property
    def _refused(self) -> sql.Identifier:
        return sql.Identifier(f"{self.name}_refused")

    def _keep_refused(
        self, cursor: psycopg.Cursor[Any], refusals: Sequence[tuple[dict[str, Any], str]], batch: int
    ) -> None:
        if not refusals:
            return
        log.warning(
            "PostgreSQL refuses rows of a table: the rows are in the table `kept`, and their keys keep the "
            "older rows",
            table=self.name,
            kept=f"{self.name}_refused",
            rows=len(refusals),
            reason=refusals[0][1],
        )
        insert = sql.SQL(
            "INSERT INTO {} (key, record, reason, batch) VALUES (md5(%s::text), %s, %s, %s)"
            " ON CONFLICT (key) DO UPDATE SET record = excluded.record, reason = excluded.reason,"
            " batch = excluded.batch, refused_at = excluded.refused_at"
        ).format(self._refused)
        keys = [as_json({name: record[name] for name in self.key}) for record, _ in refusals]
        cursor.executemany(
            insert,
            [
                (key, as_json(record, nul=""), reason, batch)
                for key, (record, reason) in zip(keys, refusals, strict=True)
            ],
        )

    def _replace(
        self,
        cursor: psycopg.Cursor[Any],
        batch: int,
        columns: Sequence[Sequence[Any]],
        numbers: Sequence[int],
    ) -> list[int]:
        """Write rows; return those of the rows' `numbers` whose row the table did not have."""
        if not numbers:
            rows = sql.SQL("unnest({}) AS new_rows").format(self._typed_lists())
            self._upsert(cursor, self._upsert_from(rows, batch), columns)
            return []
        try:
            with cursor.connection.transaction():
                return self._replace_and_tell(cursor, batch, columns, numbers)
        except psycopg.errors.CardinalityViolation:  # as in `_upsert`
            return [
                number
                for *row, number in zip(*columns, numbers, strict=True)
                for number in self._replace_and_tell(cursor, batch, [[value] for value in row], [number])
            ]

    def _upsert_from(self, rows: sql.Composable, batch: int) -> sql.Composed:
        others = [name for name in (*self.columns, "batch") if name not in self.key]
        return sql.SQL(
            "INSERT INTO {table} ({names}, batch) SELECT new_rows.*, {batch} FROM {rows}"
            " ON CONFLICT ({key}) DO UPDATE SET {replaced}"
        ).format(
            table=sql.Identifier(self.name),
            names=self._names(),
            batch=sql.Literal(batch),
            rows=rows,
            key=sql.SQL(", ").join(map(sql.Identifier, self.key)),
            replaced=sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
            ),
        )

    def _replace_and_tell(
        self,
        cursor: psycopg.Cursor[Any],
        batch: int,
        columns: Sequence[Sequence[Any]],
        numbers: Sequence[int],
    ) -> list[int]:
        """Do so in one statement, which compares the table's own values before and after.

        A row whose key the table rounds counts as changed.
        """
        same_key = sql.SQL(" AND ").join(
            sql.SQL("stored.{0} = new_rows.{0}").format(sql.Identifier(name)) for name in self.key
        )
        content = sql.SQL("ROW({})::text").format(
            sql.SQL(", ").join(sql.SQL("stored.{}").format(sql.Identifier(name)) for name in self.columns)
        )
        statement = sql.SQL(
            "WITH sluice_rows AS (SELECT * FROM unnest({lists}, %s::int[]) AS new_rows ({names}, {number})),"
            " sluice_was AS (SELECT {number}, {content} AS content"
            " FROM sluice_rows AS new_rows JOIN {table} AS stored ON {same_key}),"
            " sluice_done AS ({upsert} RETURNING *),"
            " sluice_now AS (SELECT {number}, {content} AS content"
            " FROM sluice_rows AS new_rows JOIN sluice_done AS stored ON {same_key})"
            " SELECT {number} FROM sluice_rows"
            " EXCEPT SELECT {number} FROM sluice_was JOIN sluice_now USING ({number}, content) ORDER BY 1"
        ).format(
            lists=self._typed_lists(),
            names=self._names(),
            number=sql.Identifier("sluice number"),
            content=content,
            table=sql.Identifier(self.name),
            same_key=same_key,
            upsert=self._upsert_from(
                sql.SQL("(SELECT {} FROM sluice_rows) AS new_rows").format(self._names()), batch
            ),
        )
        cursor.execute(statement, [*map(list, columns), list(numbers)])
        return [number for (number,) in cursor.fetchall()]
