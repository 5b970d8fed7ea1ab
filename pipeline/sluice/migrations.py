"""Migrations of the platform's own tables: each statement is run once in a database, numbered in the order in which it ran there.

The table `migrations` knows a statement by its digest. So a statement may be added anywhere in a part's list, and one that is written
anew is run again: each has to be idempotent. Two databases may have run them in another order. Called by `sluice.commands.tables`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg import sql

TABLE = (
    "CREATE TABLE IF NOT EXISTS migrations (number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, part text NOT NULL, digest text NOT NULL,"
    " at timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (part, digest))"
)


def digest(statement: sql.SQL | sql.Composed) -> str:
    """Return what a statement is known by. Pure."""
    return hashlib.sha256(statement.as_string().encode()).hexdigest()


def migrate(cursor: psycopg.Cursor[Any], parts: Mapping[str, Iterable[sql.SQL | sql.Composed]]) -> int:
    """Run what this schema has not had, in the caller's transaction; return how many statements."""
    cursor.execute(TABLE)
    cursor.execute("SELECT part, digest FROM migrations")
    before, count = set(cursor.fetchall()), 0
    for part, statements in parts.items():
        for statement in statements:
            if (part, digest(statement)) in before:
                continue
            cursor.execute(statement)
            cursor.execute("INSERT INTO migrations (part, digest) VALUES (%s, %s)", (part, digest(statement)))
            count += 1
    return count
