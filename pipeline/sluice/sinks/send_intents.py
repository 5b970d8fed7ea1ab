"""What a tier that delivers at most once is about to send: written down before, so that who finds it knows what not to send again.

An intent stands outside of the batch's transaction, which ends with the writer; it is dropped by the transaction that records the batch.
Who holds the tier's row in `tier_epochs` and finds one knows that its writer is gone (decision record 0027).
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
        "CREATE TABLE IF NOT EXISTS intents (tier text PRIMARY KEY, incarnation bigint NOT NULL, begins jsonb NOT NULL,"
        " ends jsonb NOT NULL, counts jsonb NOT NULL, marks jsonb NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())"
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
    """What the ledger says of it when it is never known what became of it."""
    marks: Marks
    """Those that it raises: what it may have sent is a replay from then on."""
    streams: dict[str, str] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """The logs that its offsets belong to, as a batch has them."""


@dataclass
class Intents(Connected):
    """Those of one tier, by a connection of their own."""

    tier: str

    def declare(self, intent: Intent) -> None:
        """Write it down, for good."""
        self.open().execute(
            "INSERT INTO intents (tier, incarnation, begins, ends, counts, marks, streams, epochs) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
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
        """Take it back: nothing was sent."""
        self.open().execute("DELETE FROM intents WHERE tier = %s", (self.tier,))

    def take(self, cursor: psycopg.Cursor[Any]) -> Intent | None:
        """Return what stands, and drop it with the caller's transaction."""
        taken = "DELETE FROM intents WHERE tier = %s RETURNING incarnation, begins, ends, counts, marks, streams, epochs"
        row = cursor.execute(taken, (self.tier,)).fetchone()
        if row is None:
            return None
        incarnation, begins, ends, counts, marks, streams, epochs = row
        raised = {path: tuple(position) for path, position in marks.items()}
        return Intent(incarnation, begins, ends, tuple(counts), raised, streams, epochs)
