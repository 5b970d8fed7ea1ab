"""A sink that writes each record into a table of another database, once, through SQLAlchemy.

The marks (`sluice.sinks.outside`) are in tables beside the rows. A transaction ends by counting up
the version that the writer has read. So a writer that was replaced meanwhile cannot commit
(decision 105).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from threading import Event
from typing import Any, ClassVar
from urllib.parse import unquote_plus
from weakref import finalize

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    and_,
    column,
    create_engine,
    delete,
    event,
    insert,
    make_url,
    select,
    table,
    update,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
)

from sluice.api.declarations import DeclarationError
from sluice.api.marks import first_seen
from sluice.api.sink import Rows, SinkAwayError, Unfit
from sluice.sinks.outside import OutsideSink, ReplacedError
from sluice.sinks.refused import find_refused

SECRET = re.compile(r"(password|passwd|pwd|secret|token)\s*=", re.IGNORECASE)
PORTION = 500
"""How many values one query names; databases limit the length of a query."""
MOST_CHARACTERS = 1000
"""The longest reason that is kept."""
MYSQL = ("mysql", "mariadb")
"""The names that SQLAlchemy has for MySQL and MariaDB."""
MYSQL_SESSION = "SET sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), time_zone = '+00:00'"
"""Otherwise, a server may cut off values that are too large, and reads times as its own zone's."""
MYSQL_OPTIONS: dict[str, Any] = {
    f"{name}_{option}": value
    for name in MYSQL
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}
"""Otherwise, a server may choose an engine without transactions, refuse a reason that is not
latin1, and take two writers as one whose names differ in case.
"""
OWN = MetaData()
WRITERS = Table(
    "sluice_writers",
    OWN,
    Column("writer", String(100), primary_key=True),
    Column("version", BigInteger, nullable=False),
    **MYSQL_OPTIONS,
)
MARKS = Table(
    "sluice_marks",
    OWN,
    Column("writer", String(100), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("position", Text, nullable=False),
    **MYSQL_OPTIONS,
)
"""The digest is that of a path: paths have no longest length, and some databases ignore case."""
REFUSED = Table(
    "sluice_refused",
    OWN,
    Column("writer", String(100), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("reason", Text, nullable=False),
    **MYSQL_OPTIONS,
)
"""The digest is that of a row's path and origin: a replay of a refused row has another path."""
REFUSALS = (DataError, IntegrityError, ValueError, TypeError, OverflowError)
"""The errors about a row. Python's own ones come from drivers that cannot send a value."""
REFUSED_STATES = ("22", "23")
"""The classes of SQLSTATE about values and constraints.

PyMySQL reports some of these errors as `OperationalError`, as if the server had failed.
"""


class _RefusedError(Exception):
    """The database refuses some of the rows; the text is its reason."""


@dataclass(frozen=True)
class SqlTable(OutsideSink):
    """Inserts each record once into an existing table of any database that SQLAlchemy supports.

    The table has the sink's columns. `<name>_refused` in PostgreSQL keeps the rows that the
    database refuses, each with the reason.
    """

    away: ClassVar[tuple[type[Exception], ...]] = (SQLAlchemyError, ImportError, OSError, ReplacedError)

    url: str
    """SQLAlchemy's address without a password: `mysql+pymysql://shop@db.example.com/shop`."""
    table: str | None = None
    """The table, with its schema if it has one: `shop.orders`. None: the sink's name."""
    password_file: str | None = None
    """A file with the password, on each host of the tier. The sink reads it when it connects."""

    def __post_init__(self) -> None:
        """Raise DeclarationError for an unusable `url`, or one with a password."""
        query = unquote_plus(self.url.partition("?")[2])
        if self.address.password is not None or SECRET.search(query):
            message = (
                f'sink "{self.name}": its url has a password, which every release would hold; put the '
                "password into a file on the hosts, and name this file in `password_file`"
            )
            raise DeclarationError(message)

    @property
    def address(self) -> URL:
        """The database's address."""
        try:
            return make_url(self.url)
        except (ArgumentError, ValueError):  # their texts may have a password
            message = (
                f'sink "{self.name}": its url is no address of SQLAlchemy; an example: '
                "mysql+pymysql://shop@db.example.com/shop"
            )
            raise DeclarationError(message) from None

    def connect(self, writer: str) -> "_Inserts":
        return _Inserts(self, writer)

    def explain(self, error: Exception) -> str:
        return (
            f'{self.address.render_as_string()} takes no rows of sink "{self.name}": {_reason(error)}; the '
            "batch is tried again; check this database, its Python driver on the tier's hosts, the table, "
            "and the rights of its user"
        )


class _Inserts:
    """The connection of one session of PostgreSQL to the database."""

    def __init__(self, sink: SqlTable, name: str) -> None:
        """Connect, and make the sink's own tables and this writer's version."""
        address = sink.address
        if sink.password_file is not None:
            address = address.set(password=Path(sink.password_file).read_text().strip())
        self._sink, self._name = sink, name
        self._engine = _engine(address)
        finalize(self, self._engine.dispose)
        OWN.create_all(self._engine)
        schema, _, name_there = (sink.table or sink.name).rpartition(".")
        self._insertion = insert(table(name_there, *map(column, sink.columns), schema=schema or None))
        self._version = select(WRITERS.c.version).where(WRITERS.c.writer == name)
        with self._engine.begin() as connection:
            if connection.execute(self._version).scalar() is None:
                connection.execute(insert(WRITERS), {"writer": name, "version": 0})

    def write(self, rows: Rows, halt: Event) -> dict[int, str]:
        """Insert the rows that the database lacks, and their marks."""
        paths = [_digest(path) for path in rows.paths]
        with self._engine.connect() as connection:
            # The version first: if another writer commits between these queries, it is the old one.
            version = connection.execute(self._version).scalar_one()
            marks = {
                path: tuple(json.loads(mark)) for path, mark in self._read(connection, MARKS, paths).items()
            }
            taken = dict(marks)
            missing = first_seen(taken, paths, rows.origins)
            earlier_digests = {row: _row_digest(rows, row) for row in {*range(len(rows))} - {*missing}}
            refused_before = self._read(connection, REFUSED, earlier_digests.values())
        refused = {
            row: refused_before[digest] for row, digest in earlier_digests.items() if digest in refused_before
        }
        if not missing:
            return refused
        with self._engine.begin() as connection:
            reasons = self._insert(connection, rows, missing, halt)
            self._put(
                connection, REFUSED, {_row_digest(rows, row): reason for row, reason in reasons.items()}
            )
            changed = {paths[row] for row in missing}
            for condition in self._mine(MARKS, changed & marks.keys()):
                connection.execute(delete(MARKS).where(condition))
            self._put(connection, MARKS, {path: json.dumps(taken[path]) for path in changed})
            is_read = and_(WRITERS.c.writer == self._name, WRITERS.c.version == version)
            if connection.execute(update(WRITERS).where(is_read).values(version=version + 1)).rowcount != 1:
                message = "another writer of the sink has written at the same time"
                raise ReplacedError(message)
        return refused | reasons

    def _insert(
        self, connection: Connection, rows: Rows, missing: Sequence[int], halt: Event
    ) -> dict[int, str]:
        """Insert rows; return why the database refuses some of them."""
        records = {row: self._sink.record(rows, row) for row in missing}
        refused = {
            row: misfit
            for row, record in records.items()
            for value in record.values()
            if (misfit := self._misfit(value))
        }

        def write(numbers: Sequence[int]) -> None:
            if halt.is_set():
                message = f"no row of sink {self._sink.name} was sent, because the tier must hold"
                raise SinkAwayError(message)
            if numbers:
                savepoint = connection.begin_nested()
                try:
                    connection.execute(self._insertion, [records[row] for row in numbers])
                except (*REFUSALS, DBAPIError) as error:
                    if not refuses_rows(error):
                        raise  # the savepoint may be gone: MySQL ends the transaction at a deadlock
                    savepoint.rollback()
                    raise _RefusedError(_reason(error)) from error
                savepoint.commit()

        return refused | find_refused([row for row in missing if row not in refused], write, (_RefusedError,))

    def _misfit(self, value: object) -> str | None:
        """Return why a value is not sent. PyMySQL's error for NaN says nothing of a row."""
        if isinstance(value, Unfit):
            return str(value)
        dialect = self._engine.dialect.name
        if dialect in MYSQL and isinstance(value, float) and not isfinite(value):
            return f"{dialect} has no {value}"
        return None

    def _mine(self, own: Table, digests: Iterable[str]) -> Iterator[ColumnElement[bool]]:
        """Return conditions that name this writer's rows with the digests, in portions."""
        names = sorted({*digests})
        for first in range(0, len(names), PORTION):
            yield and_(own.c.writer == self._name, own.c.digest.in_(names[first : first + PORTION]))

    def _read(self, connection: Connection, own: Table, digests: Iterable[str]) -> dict[str, str]:
        """Return the texts that one of the sink's own tables has of these digests."""
        return {
            digest: text
            for condition in self._mine(own, digests)
            for _, digest, text in connection.execute(select(own).where(condition))
        }

    def _put(self, connection: Connection, own: Table, texts: Mapping[str, str]) -> None:
        if texts:
            names = own.c.keys()
            rows = [dict(zip(names, (self._name, *text), strict=True)) for text in texts.items()]
            connection.execute(insert(own), rows)


def _engine(address: URL) -> Engine:
    engine = create_engine(address, pool_pre_ping=True)
    if engine.dialect.name in MYSQL:
        event.listen(engine, "connect", lambda connection, _: connection.cursor().execute(MYSQL_SESSION))
    if engine.dialect.name == "sqlite":
        # By itself, the driver begins no transaction before a savepoint, whose end then commits.
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def refuses_rows(error: Exception) -> bool:
    """Tell whether an error of an insertion is about its rows, so that a retry would not help."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(error, REFUSALS) or (isinstance(state, str) and state[:2] in REFUSED_STATES)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _row_digest(rows: Rows, row: int) -> str:
    return _digest(f"{rows.paths[row]} {rows.origins[row]}")


def _reason(error: Exception) -> str:
    """Return the first line of the database's message, without SQLAlchemy's statement."""
    text = str(getattr(error, "orig", None) or error)
    return text.partition("\n")[0][:MOST_CHARACTERS].replace("\0", "")
