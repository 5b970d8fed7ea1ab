"""Keeps the ledger small: after a month, the batches of one tier and day become one row.

The row keeps the sums, the first begin and the last end.
"""

from typing import Any

import psycopg

DAYS = 30
NEWEST = 10_000
"""So many batches of a tier are never folded: a start from a checkpoint adds up later batches."""

OLDEST = """
    SELECT date_trunc('day', at, 'UTC'), max(batch) FROM ledger
    WHERE tier = %(tier)s AND at < date_trunc('day', now(), 'UTC') - make_interval(days => %(days)s)
    AND batch <= (SELECT max(batch) FROM ledger WHERE tier = %(tier)s) - %(newest)s
    AND batch <= (SELECT position FROM audit_read WHERE tier = %(tier)s AND source = 'ledger')
    GROUP BY 1 HAVING count(*) > count(DISTINCT coalesce(replay, -1)) ORDER BY 1 LIMIT 1
"""
"""Returns the oldest day that is not folded, and the day's last batch that may be folded."""
FOLD = """
    WITH deleted AS (
        DELETE FROM ledger
        WHERE tier = %(tier)s AND batch <= %(batch)s AND at >= %(day)s
            AND at < %(day)s + interval '24 hours'
        RETURNING *
    ), folded AS (
        INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered,
            quarantined, replays, at, late, written, lost, replay, others)
        SELECT tier, max(incarnation), max(batch), (array_agg(begins ORDER BY batch))[1],
            (array_agg(ends ORDER BY batch DESC))[1], sum(rows_in), sum(rows_out), sum(filtered),
            sum(quarantined), sum(replays), max(at), sum(late), sum(written), sum(lost), replay,
            (SELECT jsonb_object_agg(sink, rows) FROM (
                SELECT sink, sum(rows::bigint) AS rows FROM deleted AS same, jsonb_each_text(same.others)
                    AS each (sink, rows) WHERE same.replay IS NOT DISTINCT FROM deleted.replay GROUP BY sink
            ) AS sums)
        FROM deleted GROUP BY tier, replay RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM folded)
"""


def fold(connection: psycopg.Connection[Any], tier: str) -> int:
    """Fold the oldest day that is old enough; return by how many rows the ledger shrank."""
    oldest = connection.execute(OLDEST, {"tier": tier, "days": DAYS, "newest": NEWEST}).fetchone()
    if oldest is None:
        return 0
    deleted, folded = connection.execute(
        FOLD, {"tier": tier, "day": oldest[0], "batch": oldest[1]}
    ).fetchone() or (0, 0)
    return int(deleted - folded)
