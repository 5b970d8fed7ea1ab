"""Ends the PostgreSQL session of a frozen writer, which would block its tier's new owner.

A writer that is frozen in a transaction keeps the tier's row locked. The kernel of its host still
answers PostgreSQL's probes, so PostgreSQL itself would never end the session. The ledger calls this
module.
"""

from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

log = structlog.get_logger()

FROZEN_SECONDS = 10.0
"""A writer counts as frozen if its session has waited for its client so long in a transaction."""
FROZEN_IN_CALL_SECONDS = 60.0
"""The same limit for a writer whose sink is no table: its transaction also waits for a service."""
IDLE_HOLDERS = (
    "SELECT pid, application_name, extract(epoch FROM clock_timestamp() - state_change)::float8"
    " FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event_type = 'Client'"
    " AND state_change <= clock_timestamp() - %s * interval '1 second'"
    " AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'tier_epochs'::regclass AND granted)"
)
"""Sessions that locked the fence in an open transaction and wait for their client."""
END_SESSION = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = %s AND application_name = %s AND wait_event_type = 'Client'"
)
NAME_WORDS = 4
"""The words of a writer's session name: `sluice`, epoch, incarnation and tier."""
MAX_NAME_BYTES = 63
"""PostgreSQL cuts session names off at this length. Unit: bytes."""


@dataclass(frozen=True, order=True)
class Right:
    """An incarnation's right to write its tier. The higher right wins."""

    epoch: int
    incarnation: int

    def name(self, tier: str) -> str:
        """Return the session name of a writer of the tier with this right."""
        return f"sluice {self.epoch} {self.incarnation} {tier}"[:MAX_NAME_BYTES]


def right_of(name: str, tier: str) -> Right | None:
    """Return the right in a session's name; None if no writer of the tier has this name."""
    words = name.split(" ", 3)
    if len(words) != NAME_WORDS or not words[1].isdecimal() or not words[2].isdecimal():
        return None
    right = Right(int(words[1]), int(words[2]))
    return right if name == right.name(tier) else None


def name_session(connection: psycopg.Connection[Any], right: Right, tier: str) -> None:
    """Name a session after its writer, so that other incarnations can tell the writer's right."""
    connection.execute("SELECT set_config('application_name', %s, false)", (right.name(tier),))


def end_frozen(
    connection: psycopg.Connection[Any], mine: Right, tier: str, seconds: float = FROZEN_SECONDS
) -> int:
    """End the sessions of the tier's frozen writers with a lower right than `mine`.

    Return the number of ended sessions.
    """
    ended = 0
    for pid, name, idle in connection.execute(IDLE_HOLDERS, (seconds,)).fetchall():
        right = right_of(name, tier)
        if right is None or right >= mine:
            continue
        try:
            ended += len(connection.execute(END_SESSION, (pid, name)).fetchall())
        except psycopg.errors.InsufficientPrivilege as error:
            log.warning(
                "a frozen writer holds the tier's row, and this role must not end the writer's session; "
                "run in PostgreSQL as a superuser: SELECT pg_terminate_backend(<pid>)",
                tier=tier,
                pid=pid,
                error=str(error),
            )
            continue
        log.warning(
            "ended the session of a frozen writer, which held the tier's row after another incarnation "
            "took the tier",
            tier=tier,
            incarnation=right.incarnation,
            epoch=right.epoch,
            waited_seconds=round(idle, 1),
            pid=pid,
        )
    return ended
