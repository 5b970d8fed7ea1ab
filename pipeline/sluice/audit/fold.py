"""Keeps the ledger small: a day's batches of a tier become one row of it after a month. Sums, begins and ends stay what they were."""

from typing import Any

import psycopg

DAYS = 30
NEWEST = 10_000
"""So many batches of a tier are kept however old they are: what begins from a checkpoint adds up those after it."""

OLDEST = """
    SELECT date_trunc('day', at, 'UTC'), max(batch) FROM ledger
    WHERE tier = %(tier)s AND at < date_trunc('day', now(), 'UTC') - make_interval(days => %(days)s)
    AND batch <= (SELECT max(batch) FROM ledger WHERE tier = %(tier)s) - %(newest)s
    AND batch <= (SELECT position FROM audit_read WHERE tier = %(tier)s AND source = 'ledger')
    GROUP BY 1 HAVING count(*) > count(DISTINCT coalesce(replay, -1)) ORDER BY 1 LIMIT 1
"""
"""The oldest day that is not folded, and its last batch that may be."""
FOLD = """
    WITH gone AS (
        DELETE FROM ledger WHERE tier = %(tier)s AND batch <= %(batch)s AND at >= %(day)s AND at < %(day)s + interval '24 hours' RETURNING *
    ), folded AS (
        INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, quarantined, replays, at, late, written,
            lost, replay)
        SELECT tier, max(incarnation), max(batch), (array_agg(begins ORDER BY batch))[1], (array_agg(ends ORDER BY batch DESC))[1],
            sum(rows_in), sum(rows_out), sum(filtered), sum(quarantined), sum(replays), max(at), sum(late), sum(written), sum(lost), replay
        FROM gone GROUP BY tier, replay RETURNING 1
    )
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM folded)
"""


def fold(connection: psycopg.Connection[Any], tier: str) -> int:
    """Fold the oldest day that is old enough, and return how many rows fewer there are."""
    oldest = connection.execute(OLDEST, {"tier": tier, "days": DAYS, "newest": NEWEST}).fetchone()
    if oldest is None:
        return 0
    gone, folded = connection.execute(
        FOLD, {"tier": tier, "day": oldest[0], "batch": oldest[1]}
    ).fetchone() or (0, 0)
    return int(gone - folded)
