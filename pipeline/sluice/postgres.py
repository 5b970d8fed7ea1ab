"""Connections to PostgreSQL on which both sides notice if the other side is gone.

A host that loses its power in the middle of a batch does not close its connection. Without
keepalive probes, PostgreSQL would keep the tier's row locked for two hours, TCP's default. The next
incarnation would wait for the lock. The sinks, the archive, the progress reports and the audit use
this module.
"""

from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from types import NoneType
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.conninfo import make_conninfo
from psycopg.types.array import ListDumper

CONNECT_SECONDS = 5
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Keepalive probes: the first after 10 s of silence, then every 5 s, at most 3 without an answer.

A dead connection is noticed after 25 s.
"""
UNACKNOWLEDGED_MS = 25_000
"""How long sent data may stay without acknowledgement. Unit: milliseconds."""
LOCK_SECONDS = 10
"""How long a statement waits for a lock before it fails and is retried.

The limit lets a waiting tier obey a request to hold.
"""


class FlatListDumper(ListDumper):
    """Turns a column of plain values into an array's text at once.

    psycopg takes a value at a time, which costs 0.8 µs for a text and 3.5 µs for a time.
    """

    def dump(self, obj: list[Any]) -> Buffer | None:
        """Return the text of an array."""
        kinds = set(map(type, obj))
        if kinds <= {str, int, NoneType}:
            items = ["NULL" if value is None else f'"{value}"' for value in obj]
        elif kinds <= {datetime, NoneType}:
            texts = {value: "NULL" if value is None else f'"{value}"' for value in set(obj)}
            items = [texts[value] for value in obj]
        else:
            return super().dump(obj)
        array = ",".join(items)
        quotes = 2 * (len(obj) - obj.count(None))
        if "\\" in array or "\0" in array or array.count('"') != quotes:
            return super().dump(obj)
        return f"{{{array}}}".encode()


def connect(postgres: str) -> psycopg.Connection[Any]:
    """Connect in autocommit mode, with a lock timeout, and with keepalive probes from the client
    and the server.
    """
    address = make_conninfo(
        postgres, connect_timeout=CONNECT_SECONDS, tcp_user_timeout=UNACKNOWLEDGED_MS, **KEEPALIVES
    )
    connection = psycopg.connect(address, autocommit=True)
    connection.adapters.register_dumper(list, FlatListDumper)
    settings = {f"tcp_{name}": value for name, value in KEEPALIVES.items()} | {
        "lock_timeout": LOCK_SECONDS * 1000
    }
    # An HTTP service may answer late inside a transaction. The probes notice a dead connection.
    settings["idle_in_transaction_session_timeout"] = 0
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()).encode())
    return connection


def identity(cursor: psycopg.Cursor[Any]) -> str:
    """Return a short text that tells this database from others, of other servers, too."""
    cursor.execute("SELECT system_identifier, current_database(), current_schema() FROM pg_control_system()")
    return sha256(repr(cursor.fetchone()).encode()).hexdigest()[:8]


UNAVAILABLE = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
"""PostgreSQL's errors while it is unavailable, or read-only during a failover."""


def index(name: str, table: str, columns: str) -> sql.Composed:
    """Return a statement that creates an index if the schema lacks the index.

    The statement checks first, because CREATE INDEX IF NOT EXISTS waits for all writers even if the
    index exists.
    """
    return sql.SQL(
        "DO $$ BEGIN IF to_regclass(quote_ident(current_schema()) || '.' || {}) IS NULL"
        " THEN CREATE INDEX {} ON {} {}; END IF; END $$"
    ).format(
        sql.Literal(sql.Identifier(name).as_string()),
        sql.Identifier(name),
        sql.Identifier(table),
        sql.SQL(columns),
    )


@dataclass
class Connected:
    """An object with a connection of its own, opened at first use and again after a break."""

    postgres: str
    _connection: psycopg.Connection[Any] | None = field(default=None, init=False, repr=False)

    def open(self) -> psycopg.Connection[Any]:
        """Return the connection; a new one if the last one is closed or broken."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.postgres)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
