"""The fence of a tier in PostgreSQL: only the incarnation with the highest right writes."""

from typing import Any

import psycopg

from sluice.sinks.frozen_writers import Right


class FencedError(Exception):
    """A writer with a higher right has written, so this incarnation must not write."""


def claim(cursor: psycopg.Cursor[Any], tier: str, mine: Right) -> None:
    """Lock the tier's row for the transaction, and take the right to write.

    FencedError if the row has a higher right.
    """
    cursor.execute(
        "INSERT INTO tier_epochs (tier, epoch, incarnation) VALUES (%s, %s, %s)"
        " ON CONFLICT (tier) DO NOTHING",
        (tier, mine.epoch, mine.incarnation),
    )
    row = cursor.execute(
        "SELECT epoch, incarnation FROM tier_epochs WHERE tier = %s FOR UPDATE", (tier,)
    ).fetchone()
    before = mine if row is None else Right(*row)
    if before > mine:
        delete = f"DELETE FROM tier_epochs WHERE tier = '{tier}'"  # noqa: S608 — a text for people
        message = (
            f'tier "{tier}": incarnation {before.incarnation} has written by the owner record of epoch '
            f"{before.epoch}; incarnation {mine.incarnation}, which has read epoch {mine.epoch}, must not "
            f"write any more. If ZooKeeper's data was lost and incarnation {before.incarnation} is gone for "
            f"good, run in PostgreSQL `{delete}`, then `sluice start {tier}`"
        )
        raise FencedError(message)
    if before < mine:
        cursor.execute(
            "UPDATE tier_epochs SET epoch = %s, incarnation = %s, at = now() WHERE tier = %s",
            (mine.epoch, mine.incarnation, tier),
        )
