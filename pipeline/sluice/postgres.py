"""Connections to PostgreSQL that notice on both sides when the other is gone. Used by sinks, the archive, progress and the audit.

A host that loses its power in the middle of a batch says nothing: without probes PostgreSQL would keep the tier's row locked for the two
hours that TCP waits by itself, and whoever takes over would wait for it.
"""

from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

CONNECT_SECONDS = 5
PROBED = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""After so many seconds of silence, every so many seconds, until so many were not answered: a dead end is known after 25 s."""
UNANSWERED_MS = 25_000
"""The same for what was sent and is not acknowledged."""
LOCK_SECONDS = 10
"""How long a statement waits for a lock; then it is tried again, so that a tier that waits can be told to hold."""


def connect(postgres: str) -> psycopg.Connection[Any]:
    """Connect; each statement is a transaction of its own, unless one is begun."""
    address = make_conninfo(
        postgres, connect_timeout=CONNECT_SECONDS, tcp_user_timeout=UNANSWERED_MS, **PROBED
    )
    connection = psycopg.connect(address, autocommit=True)
    settings = {f"tcp_{name}": value for name, value in PROBED.items()} | {
        "lock_timeout": LOCK_SECONDS * 1000
    }
    settings["idle_in_transaction_session_timeout"] = (
        0  # a service may take long to answer within one; a dead end is known by the probes
    )
    connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()).encode())
    return connection


AWAY = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
)
"""What PostgreSQL says when it cannot be used now: also while another server takes over and is read-only still."""


def index(name: str, table: str, what: str) -> sql.Composed:
    """Return the statement that makes an index where its schema has none: CREATE INDEX waits for all who write, even where there is one."""
    return sql.SQL(
        "DO $$ BEGIN IF to_regclass(quote_ident(current_schema()) || '.' || {}) IS NULL THEN CREATE INDEX {} ON {} {}; END IF; END $$"
    ).format(
        sql.Literal(sql.Identifier(name).as_string()),
        sql.Identifier(name),
        sql.Identifier(table),
        sql.SQL(what),
    )


@dataclass
class Connected:
    """What has a connection of its own: opened when it is needed, and anew where the last one is broken."""

    postgres: str
    _connection: psycopg.Connection[Any] | None = field(default=None, init=False, repr=False)

    def open(self) -> psycopg.Connection[Any]:
        """Return the connection; a new one where the last is broken."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.postgres)
        return self._connection

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
