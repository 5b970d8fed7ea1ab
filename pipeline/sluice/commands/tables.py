"""The tables of the platform and of the pipeline's sinks: created and migrated by `sluice.commands.publish`."""

from collections.abc import Collection, Iterable
from typing import Any

import psycopg
from psycopg import sql

from sluice.api.declarations import Pipeline
from sluice.audit import book as audited
from sluice.audit import retention, trail_archive
from sluice.migrations import migrate
from sluice.replay import book as replayed
from sluice.sinks import ledger, send_intents
from sluice_ops.model.access import Role
from sluice_ops.model.database import WORKERS, known_as

PARTS = {
    "ledger": ledger.STATEMENTS,
    "intents": send_intents.STATEMENTS,
    "audit": audited.STATEMENTS,
    "replays": replayed.STATEMENTS,
    "trail": trail_archive.STATEMENTS,
    "retention": retention.STATEMENTS,
}
"""By what they are of; a name that is in `migrations` stays."""

ADDED, WRITTEN = "SELECT, INSERT", "SELECT, INSERT, UPDATE"
OF_TIERS = {Role.DRIVER: WRITTEN, Role.OPERATOR: WRITTEN, Role.AUDIT: "SELECT"}
"""Rights to what drivers write as they go, and to a sink's tables. The operator has a driver's: a replay writes as the tier does."""
RIGHTS: dict[str, dict[Role, str]] = {
    "tier_epochs": OF_TIERS,
    "marks": OF_TIERS,
    "tier_progress": OF_TIERS,
    "archived": OF_TIERS,
    "added_up": OF_TIERS,
    "tier_streams": OF_TIERS,
    "ledger": {
        Role.DRIVER: ADDED,
        Role.OPERATOR: ADDED,
        Role.AUDIT: "SELECT, INSERT, DELETE",
    },  # the audit folds what is old
    "intents": dict.fromkeys((Role.DRIVER, Role.OPERATOR), "SELECT, INSERT, DELETE") | {Role.AUDIT: "SELECT"},
    "campaign_daily": {Role.OPERATOR: "SELECT, INSERT, DELETE", Role.AUDIT: "SELECT"},
    "audit": {Role.AUDIT: f"{WRITTEN}, DELETE", Role.OPERATOR: "SELECT"},
    "audit_read": {Role.AUDIT: f"{WRITTEN}, DELETE", Role.OPERATOR: "SELECT"},
    "audit_streams": {Role.AUDIT: WRITTEN, Role.OPERATOR: "SELECT"},
    "frontier": {Role.AUDIT: f"{WRITTEN}, DELETE", Role.OPERATOR: "SELECT"},
    "losses": {Role.AUDIT: ADDED, Role.OPERATOR: WRITTEN},
    "losses_number_seq": {Role.AUDIT: "USAGE", Role.OPERATOR: "USAGE"},
    "replays": {Role.OPERATOR: WRITTEN, Role.AUDIT: "SELECT"},
    "replays_number_seq": {Role.OPERATOR: "USAGE"},
    "trail": {Role.AUDIT: ADDED, Role.OPERATOR: "SELECT"},
}
"""Who may do what with the platform's own tables, and the sequences of two of them; nobody but the owner makes, changes or drops one."""

LOCK = 7_243_001
"""One publisher at a time: two that create the same table would fail each other."""

LOCK_SECONDS = 10
"""How long a change of a table may wait for who reads it; all tiers that write it wait meanwhile."""


def create(postgres: str, pipeline: Pipeline, earlier: Collection[str] = ()) -> list[str]:
    """Create what is missing, and grant rights; return the sinks' names. Tiers of `earlier` releases may still write to those sinks."""
    sinks = [tier.sink for tier in pipeline.tiers if tier.sink is not None]
    with psycopg.connect(postgres, connect_timeout=5) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        cursor.execute("SET LOCAL client_min_messages = warning")
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS} s'".encode())
        migrate(cursor, PARTS)
        for sink in sinks:
            for made in sink.statements():
                cursor.execute(made)
        grant(cursor, {*earlier, *(sink.name for sink in sinks)})
    return [sink.name for sink in sinks]


def grant(cursor: psycopg.Cursor[Any], sinks: Iterable[str]) -> None:
    """Give each role its rights to the tables, and take all others from it; where there are no roles, do nothing."""
    cursor.execute(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", ([known_as(role) for role in WORKERS],)
    )
    known = {row[0] for row in cursor.fetchall()}
    wanted = {**{name: OF_TIERS for sink in sinks for name in (sink, f"{sink}_refused")}, **RIGHTS}
    for name, rights in wanted.items():
        cursor.execute(
            "SELECT relkind = 'S' FROM pg_class WHERE oid = to_regclass(%s)",
            (sql.Identifier(name).as_string(),),
        )
        row = cursor.fetchone()
        if row is None:
            continue
        thing = sql.SQL("SEQUENCE {}" if row[0] else "TABLE {}").format(sql.Identifier(name))
        for role in (Role.DRIVER, Role.OPERATOR, Role.AUDIT):
            if known_as(role) not in known:
                continue
            user = sql.Identifier(known_as(role))
            cursor.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(thing, user))
            if role in rights:
                cursor.execute(sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights[role]), thing, user))
