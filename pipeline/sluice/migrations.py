"""Migrations of the platform's own tables: each statement runs once in a database.

The table `migrations` stores the digest of each statement that ran, and numbers the statements in
the order in which they ran. A statement may therefore be inserted anywhere in a list. A statement
whose text changes runs again, so each statement must be idempotent. Two databases may have run the
statements in a different order. `sluice.commands.tables` calls this module.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg import sql

TABLE = (
    "CREATE TABLE IF NOT EXISTS migrations (number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " part text NOT NULL, digest text NOT NULL,"
    " at timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (part, digest))"
)


def digest(statement: sql.SQL | sql.Composed) -> str:
    """Return the digest that identifies a statement. Pure."""
    return hashlib.sha256(statement.as_string().encode()).hexdigest()


def migrate(cursor: psycopg.Cursor[Any], parts: Mapping[str, Iterable[sql.SQL | sql.Composed]]) -> int:
    """Run the statements that this schema has not run yet, and return their number.

    The statements run in the caller's transaction.
    """
    cursor.execute(TABLE)
    cursor.execute("SELECT part, digest FROM migrations")
    already_run, count = set(cursor.fetchall()), 0
    for part, statements in parts.items():
        for statement in statements:
            if (part, digest(statement)) in already_run:
                continue
            cursor.execute(statement)
            cursor.execute("INSERT INTO migrations (part, digest) VALUES (%s, %s)", (part, digest(statement)))
            count += 1
    return count
