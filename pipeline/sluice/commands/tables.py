"""Creates and migrates the tables of Sluice, of the pipeline's sinks and of its batch jobs, and
grants rights to them.

`sluice.commands.publish` calls this module.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from psycopg import sql

from sluice.api.declarations import Pipeline
from sluice.api.own_tables import OWN_TABLES
from sluice.api.sink import Sink
from sluice.audit import book as audited
from sluice.audit import retention, trail_archive
from sluice.migrations import migrate
from sluice.replay import book as replayed
from sluice.sinks import ledger, outbox, send_intents
from sluice.sinks.table import DeltaTable, JsonFiles, ParquetFiles, definition, primary_key
from sluice_ops.model.access import Role
from sluice_ops.model.database import WORKERS, known_as

PARTS = {
    "ledger": ledger.STATEMENTS,
    "intents": send_intents.STATEMENTS,
    "outbox": outbox.STATEMENTS,
    "audit": audited.STATEMENTS,
    "replays": replayed.STATEMENTS,
    "trail": trail_archive.STATEMENTS,
    "retention": retention.STATEMENTS,
    "purposes": tuple(
        sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(name), sql.Literal(purpose))
        for name, purpose in OWN_TABLES.items()
    ),
}
"""The statements of each part of the schema. The table `migrations` keeps these names: never rename
one.
"""

ADDED, WRITTEN = "SELECT, INSERT", "SELECT, INSERT, UPDATE"
OF_TIERS = {Role.DRIVER: WRITTEN, Role.OPERATOR: WRITTEN, Role.AUDIT: "SELECT"}
"""Rights to the tables that drivers write. The operator has a driver's rights, because a replay
writes like its tier.
"""
FILES = {DeltaTable.__name__, JsonFiles.__name__, ParquetFiles.__name__}
"""The kinds of sinks that keep a row in a table only until a file has it."""
OF_FILES = OF_TIERS | dict.fromkeys((Role.DRIVER, Role.OPERATOR), f"{WRITTEN}, DELETE")
"""Rights to the tables of `FILES`, whose rows leave once files have them."""
OF_JOBS = {Role.OPERATOR: f"{WRITTEN}, DELETE", Role.AUDIT: "SELECT"}
"""Rights to the tables that batch jobs write: they run as the operator."""
RIGHTS: dict[str, dict[Role, str]] = {
    "tier_epochs": OF_TIERS,
    "marks": OF_TIERS,
    "tier_progress": OF_TIERS,
    "archived": OF_TIERS,
    "added_up": OF_TIERS,
    "tier_streams": OF_TIERS,
    # the audit folds old rows
    "ledger": {Role.DRIVER: ADDED, Role.OPERATOR: ADDED, Role.AUDIT: "SELECT, INSERT, DELETE"},
    "intents": dict.fromkeys((Role.DRIVER, Role.OPERATOR), "SELECT, INSERT, DELETE") | {Role.AUDIT: "SELECT"},
    "outbox": {Role.DRIVER: "SELECT, INSERT, DELETE", Role.AUDIT: "SELECT"},
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
"""The rights of each role to Sluice's own tables and sequences.

Only the owner creates, changes and drops tables.
"""

LOCK = 7_243_001
"""The advisory lock of publishers: two publishers that create the same table would fail."""

LOCK_SECONDS = 10
"""How long a change of a table may wait for readers of the table; tiers that write it wait, too."""


def create(postgres: str, pipeline: Pipeline, earlier: Mapping[str, str] | None = None) -> list[str]:
    """Create and migrate tables, and grant rights; return the names of the pipeline's tables.

    `earlier` has the names and kinds of the sinks of earlier releases, whose tiers may still write.
    """
    sinks = _sinks(pipeline)
    with psycopg.connect(postgres, connect_timeout=5) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        cursor.execute("SET LOCAL client_min_messages = warning")
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS} s'".encode())
        migrate(cursor, PARTS)
        for sink in sinks:
            for statement in sink.statements():
                cursor.execute(statement)
        for table in pipeline.tables:
            for statement in definition(table.name, table.columns, [primary_key(table.key)]):
                cursor.execute(statement)
        jobs = [table.name for table in pipeline.tables]
        grant(cursor, {**(earlier or {}), **{sink.name: type(sink).__name__ for sink in sinks}}, jobs)
    return [*(sink.name for sink in sinks), *jobs]


def missing(postgres: str, pipeline: Pipeline) -> list[str]:
    """Return the tables that `create` would create: the pipeline's, then Sluice's own."""
    names = [
        *(name for sink in _sinks(pipeline) for name in sink.tables),
        *(table.name for table in pipeline.tables),
        *OWN_TABLES,
    ]
    with psycopg.connect(postgres, connect_timeout=5) as connection:
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename = ANY(%s)",
            (names,),
        )
        present = {name for (name,) in rows}
    return [name for name in names if name not in present]


def _sinks(pipeline: Pipeline) -> list[Sink]:
    return [sink for tier in pipeline.tiers for sink in tier.sinks]


def grant(cursor: psycopg.Cursor[Any], sinks: Mapping[str, str], jobs: Iterable[str]) -> None:
    """Grant each role its rights to the tables, and revoke all other rights.

    `sinks` has the kind of each sink, by name. `jobs` are the tables that batch jobs write. Skip
    roles that the database does not have.
    """
    cursor.execute(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", ([known_as(role) for role in WORKERS],)
    )
    known = {row[0] for row in cursor.fetchall()}
    rights_of_tables = {
        **{
            name: OF_FILES if kind in FILES else OF_TIERS
            for sink, kind in sinks.items()
            for name in (sink, f"{sink}_refused")
        },
        **dict.fromkeys(jobs, OF_JOBS),
        **RIGHTS,
    }
    for name, rights in rights_of_tables.items():
        cursor.execute(
            "SELECT relkind = 'S' FROM pg_class WHERE oid = to_regclass(%s)",
            (sql.Identifier(name).as_string(),),
        )
        row = cursor.fetchone()
        if row is None:
            continue
        target = sql.SQL("SEQUENCE {}" if row[0] else "TABLE {}").format(sql.Identifier(name))
        for role in (Role.DRIVER, Role.OPERATOR, Role.AUDIT):
            if known_as(role) not in known:
                continue
            user = sql.Identifier(known_as(role))
            cursor.execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(target, user))
            if role in rights:
                cursor.execute(sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights[role]), target, user))
