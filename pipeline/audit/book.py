"""What the audit remembers, in PostgreSQL: for each tier and input partition how far it has judged, and what it has found."""

import json
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS audit (tier text, partition text, judged bigint NOT NULL, once bigint NOT NULL, again bigint NOT NULL,"
        " lost bigint NOT NULL, first_lost text, ahead jsonb NOT NULL, judges boolean NOT NULL,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (tier, partition))"
    ),
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS audit_read (tier text, source text, position bigint NOT NULL,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (tier, source))"
    ),
)


@dataclass
class Line:
    """One input partition of a tier."""

    judged: int
    """The next offset to be judged."""
    once: int = 0
    again: int = 0
    lost: int = 0
    first_lost: str | None = None
    ahead: list[tuple[int, int]] = field(default_factory=list)
    judges: bool = True
    """Whether what is missing is lost; not so where a tier leaves records out on purpose."""


@dataclass
class Page:
    """All that is remembered of one tier."""

    lines: dict[str, Line] = field(default_factory=dict)
    """By input partition, `stream/partition`."""
    read: dict[str, int] = field(default_factory=dict)
    """How far each source was read: an output's partition, or the ledger."""


class Book:
    """The audit's own connection."""

    def __init__(self, postgres: str) -> None:
        """Prepare; nothing is opened yet."""
        self._postgres = postgres
        self._connection: psycopg.Connection[Any] | None = None

    def open(self) -> "psycopg.Connection[Any]":
        """Return the connection; a new one where the last is broken."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._postgres, autocommit=True, connect_timeout=5)
        return self._connection

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def load(self, tier: str) -> Page:
        """Return what is remembered of a tier."""
        found = self.open().execute(
            "SELECT partition, judged, once, again, lost, first_lost, ahead, judges FROM audit WHERE tier = %s", (tier,)
        )
        lines = {
            partition: Line(judged, once, again, lost, first, [(begin, end) for begin, end in ahead], judges)
            for partition, judged, once, again, lost, first, ahead, judges in found.fetchall()
        }
        read = self.open().execute("SELECT source, position FROM audit_read WHERE tier = %s", (tier,)).fetchall()
        return Page(lines, dict(read))

    def save(self, tier: str, page: Page) -> None:
        """Remember it, all or nothing."""
        connection = self.open()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO audit (tier, partition, judged, once, again, lost, first_lost, ahead, judges)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (tier, partition) DO UPDATE SET"
                " (judged, once, again, lost, first_lost, ahead, judges, at) = (excluded.judged, excluded.once, excluded.again,"
                " excluded.lost, excluded.first_lost, excluded.ahead, excluded.judges, clock_timestamp())",
                [
                    (tier, partition, line.judged, line.once, line.again, line.lost, line.first_lost, json.dumps(line.ahead), line.judges)
                    for partition, line in page.lines.items()
                ],
            )
            cursor.executemany(
                "INSERT INTO audit_read (tier, source, position) VALUES (%s, %s, %s)"
                " ON CONFLICT (tier, source) DO UPDATE SET (position, at) = (excluded.position, clock_timestamp())",
                [(tier, source, position) for source, position in page.read.items()],
            )
