"""Tables that a tier fills, batch by batch, in one transaction with its ledger row (`sluice.sinks.ledger`). Replays change nothing.

`Once` takes each record one time: its origin is the primary key. `Totals` adds records up: replays are told from new records by a
high-water mark for each path (`sluice.api.marks`). `Latest` keeps the newest row of each key, for tiers with state.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, ClassVar

import psycopg
import structlog
from psycopg import sql

from sluice.api.declarations import DeclarationError
from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, Unfit, Written
from sluice.postgres import index
from sluice.sinks.refused import refused
from sluice.sinks.row_json import as_json

log = structlog.get_logger()

LENGTH = re.compile(r"\s*\([^)]*\)")
OF_LENGTH_ONE = dict.fromkeys(
    ("char", "character", "nchar", "national char", "national character"), "bpchar"
) | {"bit": '"bit"'}
"""Types that have a length where none is said, and what PostgreSQL calls them without."""


def loose(kind: str) -> str:
    """Return a type without its length: a cast to it cuts nothing, so what is too long is for the column to refuse. Pure."""
    bare = " ".join(LENGTH.sub("", kind).split())
    return OF_LENGTH_ONE.get(bare.lower(), bare)


WHOLE = ("smallint", "integer", "int", "bigint")


@dataclass(frozen=True)
class Table(Sink):
    """A table of PostgreSQL."""

    transactional: ClassVar[bool] = True

    def _typed(self) -> sql.Composed:
        return sql.SQL(", ").join(
            sql.SQL("%s::") + sql.SQL(loose(kind) + "[]") for kind in self.columns.values()
        )

    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(name) for name in self.columns)

    @staticmethod
    def _upsert(
        cursor: psycopg.Cursor[Any], statement: sql.Composed, columns: Sequence[Sequence[Any]]
    ) -> None:
        """Write rows by their keys: at once, or one after the other where keys that differ here are one there.

        So it is with a number that its column rounds, or with spaces at the end of a text in a `char(n)`.
        """
        try:
            with cursor.connection.transaction():
                cursor.execute(statement, [list(column) for column in columns])
        except psycopg.errors.CardinalityViolation:
            cursor.executemany(statement, [[[value] for value in row] for row in zip(*columns, strict=True)])

    def _define(self, more: Sequence[sql.Composable]) -> list[sql.Composed]:
        table = sql.Identifier(self.name)
        kinds = [sql.Identifier(name) + sql.SQL(f" {kind}") for name, kind in self.columns.items()]
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
            table, sql.SQL(", ").join([*kinds, *more])
        )
        # ALTER TABLE waits for everybody who reads the table, and all who write it wait behind that: only where there is something to do
        migrate = [
            sql.SQL(
                "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = {}::regclass AND attname = {} AND NOT attisdropped)"
                " THEN ALTER TABLE {} ADD COLUMN {}; END IF; END $$"
            ).format(sql.Literal(table.as_string()), sql.Literal(name), table, kind)
            for name, kind in zip(self.columns, kinds, strict=True)
        ]
        return [create, *migrate]


@dataclass(frozen=True)
class Once(Table):
    """Every record exactly once."""

    stamp: str = "written_at"
    """The column that says when the row was written."""
    archive: str | None = None
    """The folder below `archive/` that gets the same rows as Parquet, by hour."""

    def __post_init__(self) -> None:
        """Refuse a folder that would lead elsewhere."""
        if self.archive is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.archive):
            message = f'sink "{self.name}": archive is {self.archive!r}; name one folder, of letters, digits, _, . and -'
            raise DeclarationError(message)

    def statements(self) -> list[sql.Composed]:
        """Add the time, the origin and the batch of each row."""
        stamp = sql.Identifier(self.stamp) + sql.SQL(" timestamptz NOT NULL DEFAULT clock_timestamp()")
        more = [stamp, sql.SQL("origin text PRIMARY KEY"), sql.SQL("batch bigint NOT NULL")]
        return [*self._define(more), index(f"{self.name}_batch", self.name, "(batch)")]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Insert; a row whose origin is there already is a replay."""
        del marks, halt
        insert = sql.SQL(
            "INSERT INTO {table} ({names}, origin, batch) SELECT given.*, {batch} FROM unnest({typed}, %s::text[]) AS given"
            " ON CONFLICT (origin) DO NOTHING"
        ).format(
            table=sql.Identifier(self.name),
            names=self._names(),
            typed=self._typed(),
            batch=sql.Literal(batch),
        )
        cursor.execute(insert, [*(list(rows.columns[name]) for name in self.columns), list(rows.origins)])
        return Written(cursor.rowcount)


@dataclass(frozen=True)
class Totals(Table):
    """Numbers added up by key."""

    key: tuple[str, ...] = field(default=())
    counted: tuple[str, ...] = field(default=())
    """Columns of whole numbers to which, together, each row adds one: PostgreSQL notes how much that becomes, and the audit holds it
    against the ledger. Without them nobody looks at what has become of the rows."""

    def __post_init__(self) -> None:
        """Refuse to count by what is no number."""
        if wrong := [
            name
            for name in self.counted
            if name in self.key or self.columns.get(name, "").lower() not in WHOLE
        ]:
            message = f'sink "{self.name}": counted names {", ".join(wrong)}; name columns of type {", ".join(WHOLE)} that are not in its key'
            raise DeclarationError(message)

    @property
    def keys(self) -> Sequence[str]:
        """Return the key."""
        return self.key

    def statements(self) -> list[sql.Composed]:
        """Make the key the primary one."""
        key = sql.SQL(", ").join(sql.Identifier(name) for name in self.key)
        return [
            *self._define([sql.SQL("PRIMARY KEY ({})").format(key)]),
            *(self._noted() if self.counted else []),
        ]

    def _noted(self) -> list[sql.Composed]:
        """Have PostgreSQL note by how much the counted columns grow, whoever writes: nobody has to add the whole table up to know."""
        each = sql.SQL(" + ").join(
            sql.SQL("coalesce({}, 0)::bigint").format(sql.Identifier(name)) for name in self.counted
        )
        table, noted = sql.Identifier(self.name), sql.Identifier(f"{self.name}_added_up")
        name, changed = sql.Literal(self.name), sql.SQL("(SELECT coalesce(sum({}), 0) FROM {})")
        statements = [
            sql.SQL("INSERT INTO added_up (name) VALUES ({}) ON CONFLICT DO NOTHING").format(name),
            sql.SQL(
                "CREATE OR REPLACE FUNCTION {noted}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " UPDATE added_up SET added = added + {new} WHERE name = {name};"
                " IF TG_OP = 'UPDATE' THEN UPDATE added_up SET added = added - {old} WHERE name = {name}; END IF;"
                " RETURN NULL; END $$"
            ).format(
                noted=noted,
                name=name,
                new=changed.format(each, sql.SQL("rows_after")),
                old=changed.format(each, sql.SQL("rows_before")),
            ),
        ]
        for event, rows in (
            ("INSERT", "NEW TABLE AS rows_after"),
            ("UPDATE", "OLD TABLE AS rows_before NEW TABLE AS rows_after"),
        ):
            trigger = f"{self.name}_added_up_{event.lower()}"
            statements.append(
                sql.SQL(  # as with ALTER TABLE: only where there is something to do
                    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = {}::regclass AND tgname = {}) THEN"
                    " CREATE TRIGGER {} AFTER {} ON {} REFERENCING {} FOR EACH STATEMENT EXECUTE FUNCTION {}(); END IF; END $$"
                ).format(
                    sql.Literal(table.as_string()),
                    sql.Literal(trigger),
                    sql.Identifier(trigger),
                    sql.SQL(event),
                    table,
                    sql.SQL(rows),
                    noted,
                )
            )
        return statements

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Add up what was not seen before; null adds nothing."""
        del batch, halt
        numbers = [name for name in self.columns if name not in self.key]
        sums: dict[tuple[Any, ...], list[int]] = {}
        new = first_seen(marks, rows.paths, rows.origins)
        for row in new:
            key = tuple(rows.columns[name][row] for name in self.key)
            total = sums.setdefault(key, [0] * len(numbers))
            for position, name in enumerate(numbers):
                total[position] += rows.columns[name][row] or 0
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
                "INSERT INTO {table} ({names}) SELECT * FROM unnest({typed}) ON CONFLICT ({key}) DO UPDATE SET {added}"
            ).format(
                table=table,
                names=self._names(),
                typed=self._typed(),
                key=sql.SQL(", ").join(sql.Identifier(name) for name in self.key),
                added=sql.SQL(", ").join(added),
            )
            self._upsert(cursor, upsert, [lists[name] for name in self.columns])
        return Written(len(new))


@dataclass(frozen=True)
class Latest(Table):
    """The newest row of each key: the results of a tier with state (decision record 0016).

    A row that it does not take is of no one record that could go to quarantine; it is kept in the table `<name>_refused`, the newest of
    each key, and the key has its older row still.
    """

    replaces: ClassVar[bool] = True

    key: tuple[str, ...] = field(default=())
    """Columns that are never null."""

    def statements(self) -> list[sql.Composed]:
        """Make the key the primary one, and keep the batch that each row is of."""
        key = sql.SQL(", ").join(sql.Identifier(name) for name in self.key)
        more = [sql.SQL("batch bigint NOT NULL"), sql.SQL("PRIMARY KEY ({})").format(key)]
        kept = sql.SQL(  # by the key's hash: it may be what is too long
            "CREATE TABLE IF NOT EXISTS {} (key text PRIMARY KEY, record jsonb NOT NULL, reason text NOT NULL, batch bigint NOT NULL,"
            " refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        ).format(self._refused)
        return [*self._define(more), index(f"{self.name}_batch", self.name, "(batch)"), kept]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Put each row that can be written in the place of the one before it, and keep the others."""
        del marks, halt
        given = list(zip(*(rows.columns[name] for name in self.columns), strict=True))
        why = {
            row: str(each) for row, values in enumerate(given) for each in values if isinstance(each, Unfit)
        }
        statement = self._replace(batch)

        def write(some: Sequence[int]) -> None:
            if some:
                with cursor.connection.transaction():
                    self._upsert(cursor, statement, list(zip(*(given[row] for row in some), strict=True)))

        why |= refused([row for row in range(len(given)) if row not in why], write)
        self._keep(
            cursor,
            [(dict(zip(self.columns, given[row], strict=True)), said) for row, said in why.items()],
            batch,
        )
        # keys that are one here may be several rows of those given
        cursor.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE batch = %s").format(sql.Identifier(self.name)), (batch,)
        )
        (there,) = cursor.fetchone() or (0,)
        return Written(int(there), len(why))

    @property
    def _refused(self) -> sql.Identifier:
        return sql.Identifier(f"{self.name}_refused")

    def _keep(
        self, cursor: psycopg.Cursor[Any], refusals: Sequence[tuple[dict[str, Any], str]], batch: int
    ) -> None:
        if not refusals:
            return
        log.warning(
            "rows are not taken by their table: they are kept aside, and their keys have the rows from before",
            table=self.name, kept=f"{self.name}_refused", rows=len(refusals), reason=refusals[0][1],
        )  # fmt: skip
        keep = sql.SQL(
            "INSERT INTO {} (key, record, reason, batch) VALUES (md5(%s::text), %s, %s, %s) ON CONFLICT (key) DO UPDATE"
            " SET record = excluded.record, reason = excluded.reason, batch = excluded.batch, refused_at = excluded.refused_at"
        ).format(self._refused)
        keys = [as_json({name: record[name] for name in self.key}) for record, _ in refusals]
        cursor.executemany(
            keep,
            [
                (key, as_json(record, nul=""), said, batch)
                for key, (record, said) in zip(keys, refusals, strict=True)
            ],
        )

    def _replace(self, batch: int) -> sql.Composed:
        others = [name for name in (*self.columns, "batch") if name not in self.key]
        return sql.SQL(
            "INSERT INTO {table} ({names}, batch) SELECT given.*, {batch} FROM unnest({typed}) AS given"
            " ON CONFLICT ({key}) DO UPDATE SET {replaced}"
        ).format(
            table=sql.Identifier(self.name),
            names=self._names(),
            batch=sql.Literal(batch),
            typed=self._typed(),
            key=sql.SQL(", ").join(sql.Identifier(name) for name in self.key),
            replaced=sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
            ),
        )
