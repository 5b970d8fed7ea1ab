"""The tables of the platform and of the pipeline's sinks: created and migrated by `pipeline.publish`."""

import psycopg

from pipeline.audit import book as audited
from pipeline.audit import retention, trail
from pipeline.declare import Pipeline
from pipeline.migrations import migrate
from pipeline.replay import book as replayed
from pipeline.sinks import intents, ledger

PARTS = {
    "ledger": ledger.STATEMENTS,
    "intents": intents.STATEMENTS,
    "audit": audited.STATEMENTS,
    "replays": replayed.STATEMENTS,
    "trail": trail.STATEMENTS,
    "retention": retention.STATEMENTS,
}
"""By what they are of; a name that is in `migrations` stays."""

LOCK = 7_243_001
"""One publisher at a time: two that create the same table would fail each other."""

LOCK_SECONDS = 10
"""How long a change of a table may wait for who reads it; all tiers that write it wait meanwhile."""


def create(postgres: str, pipeline: Pipeline) -> list[str]:
    """Create what is missing; return the sinks' names."""
    sinks = [tier.sink for tier in pipeline.tiers if tier.sink is not None]
    with psycopg.connect(postgres, connect_timeout=5) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        cursor.execute("SET LOCAL client_min_messages = warning")
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS} s'".encode())
        migrate(cursor, PARTS)
        for sink in sinks:
            for made in sink.statements():
                cursor.execute(made)
    return [sink.name for sink in sinks]
