"""Ending the session of a writer that is frozen in its transaction, and so keeps its tier's row from whoever owns the tier now.

The kernel of such a writer's host answers PostgreSQL's probes, so PostgreSQL itself would keep that session for ever. Called by the ledger.
"""

from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

log = structlog.get_logger()

FROZEN_SECONDS = 10.0
"""A writer whose session has waited for its client for so long, in a transaction, counts as frozen."""
CALLS_SECONDS = 60.0
"""The same of one whose sink is no table: in its transaction it waits for a service, too."""
HOLDERS = (
    "SELECT pid, application_name, extract(epoch FROM clock_timestamp() - state_change)::float8 FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND wait_event_type = 'Client'"
    " AND state_change <= clock_timestamp() - %s * interval '1 second'"
    " AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'tier_epochs'::regclass AND granted)"
)
"""Sessions that have touched the fence in a transaction that is still open, and wait for their client."""
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND application_name = %s AND wait_event_type = 'Client'"
LONGEST = 63
"""PostgreSQL cuts names of sessions off here. Unit: bytes."""


@dataclass(frozen=True, order=True)
class Right:
    """By what an incarnation writes its tier: the higher one wins."""

    epoch: int
    incarnation: int

    def name(self, tier: str) -> str:
        """Return what the session of its writer is called."""
        return f"sluice {self.epoch} {self.incarnation} {tier}"[:LONGEST]


def right_of(name: str, tier: str) -> Right | None:
    """Return the right of the session of that name; None where it is not of a writer of the tier."""
    words = name.split(" ", 3)
    if len(words) != 4 or not words[1].isdecimal() or not words[2].isdecimal():  # noqa: PLR2004 — as `name` makes it
        return None
    right = Right(int(words[1]), int(words[2]))
    return right if name == right.name(tier) else None


def call(connection: psycopg.Connection[Any], right: Right, tier: str) -> None:
    """Name a session, so that others know whose it is."""
    connection.execute("SELECT set_config('application_name', %s, false)", (right.name(tier),))


def end_frozen(
    connection: psycopg.Connection[Any], mine: Right, tier: str, seconds: float = FROZEN_SECONDS
) -> int:
    """End the sessions of the tier's frozen writers whose right is less than `mine`; return how many there were."""
    ended = 0
    for pid, name, idle in connection.execute(HOLDERS, (seconds,)).fetchall():
        right = right_of(name, tier)
        if right is None or right >= mine:
            continue
        try:
            ended += len(connection.execute(END, (pid, name)).fetchall())
        except psycopg.errors.InsufficientPrivilege as error:
            log.warning(
                "a frozen writer's session cannot be ended: end it by hand",
                tier=tier,
                pid=pid,
                error=str(error),
            )
            continue
        log.warning(
            "ended the session of a writer that hangs: it held the tier's row, and another owns the tier",
            tier=tier,
            incarnation=right.incarnation,
            epoch=right.epoch,
            waited_seconds=round(idle, 1),
            pid=pid,
        )
    return ended
