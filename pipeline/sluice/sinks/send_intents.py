"""Intents: the batch that an at-most-once tier is about to send, stored before it is sent.

An intent is stored outside the batch's transaction, so it survives the writer. The transaction that
records the batch deletes the intent. An incarnation that holds the tier's row in `tier_epochs` and
finds an intent knows two facts: the intent's writer is gone, and the batch must not be sent again
(decision 27).
"""

import json
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from sluice.api.marks import Marks
from sluice.postgres import Connected

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS intents (tier text PRIMARY KEY, incarnation bigint NOT NULL,"
        " begins jsonb NOT NULL,"
        " ends jsonb NOT NULL, counts jsonb NOT NULL, marks jsonb NOT NULL,"
        " at timestamptz NOT NULL DEFAULT clock_timestamp())"
    ),
    sql.SQL(
        "ALTER TABLE intents ADD COLUMN IF NOT EXISTS streams jsonb NOT NULL DEFAULT '{}';"
        " ALTER TABLE intents ADD COLUMN IF NOT EXISTS epochs jsonb NOT NULL DEFAULT '{}'"
    ),
)


@dataclass(frozen=True)
class Intent:
    """A batch that is about to be sent."""

    incarnation: int
    begins: dict[str, int]
    ends: dict[str, int]
    counts: tuple[int, ...]
    """The batch's counts for the ledger if its result stays unknown."""
    marks: Marks
    """The marks that the batch raises, so that records that it may have sent count as replays."""
    streams: dict[str, str] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """With `streams`: the logs that the offsets belong to, as in `Batch`."""


@dataclass
class Intents(Connected):
    """The intents of one tier, with a connection of their own."""

    tier: str

    def declare(self, intent: Intent) -> None:
        """Store the intent, outside the transaction of the batch."""
        self.open().execute(
            "INSERT INTO intents (tier, incarnation, begins, ends, counts, marks, streams, epochs)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                self.tier,
                intent.incarnation,
                *map(
                    json.dumps,
                    (intent.begins, intent.ends, intent.counts, intent.marks, intent.streams, intent.epochs),
                ),
            ),
        )

    def withdraw(self) -> None:
        """Delete the intent, because nothing was sent."""
        self.open().execute("DELETE FROM intents WHERE tier = %s", (self.tier,))

    def take(self, cursor: psycopg.Cursor[Any]) -> Intent | None:
        """Delete the stored intent in the caller's transaction and return it; None without one."""
        row = cursor.execute(
            "DELETE FROM intents WHERE tier = %s"
            " RETURNING incarnation, begins, ends, counts, marks, streams, epochs",
            (self.tier,),
        ).fetchone()
        if row is None:
            return None
        incarnation, begins, ends, counts, marks, streams, epochs = row
        raised = {path: tuple(position) for path, position in marks.items()}
        return Intent(incarnation, begins, ends, tuple(counts), raised, streams, epochs)
