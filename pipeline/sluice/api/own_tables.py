"""Sluice's own tables and indexes in PostgreSQL. No sink and no `JobTable` may have their names.

`sluice.commands.tables` creates them.
"""

OWN_TABLES = {
    "added_up": "How much all records added to each table of kind Totals with counted columns",
    "archived": "Up to which batch a sink's Parquet files are complete, and how many rows they have",
    "audit": "The audit's account of each input partition of a tier",
    "audit_read": "Up to which place the audit has read each source of a tier",
    "audit_streams": "The identity of each stream that the audit reads, and its ends",
    "frontier": "The time of arrival up to which all records have left a tier",
    "intents": "Delivery at most once: the batch that a tier is about to send",
    "ledger": "One row for each batch of a tier with a sink: where the batch begins and ends, and its counts",
    "losses": "Records that the audit did not find in the output, until a person settles the loss",
    "marks": "The last origin that a tier with a sink took on each path; older origins are replays",
    "migrations": "The statements of the schema that have run",
    "outbox": "Records that the streams of tiers with state must still get",
    "replays": "Each `sluice replay`: its ranges, rate and progress",
    "tier_epochs": "The fence: the incarnation that may write batches of a tier",
    "tier_progress": "The last figures of each tier: rates, lag and latency",
    "tier_streams": "The identity and leader epochs of each stream that a tier with a sink reads",
    "trail": "All requests: time, user, layer, request and outcome. Rows are only added",
}
"""Table of Sluice → what the table holds. psql shows the text as the comment of the table."""

OWN_INDEXES = frozenset(
    {
        "ledger_at",
        "ledger_lost",
        "losses_number_seq",
        "migrations_number_seq",
        "migrations_part_digest_key",
        "outbox_number_seq",
        "replays_number_seq",
        "trail_at",
        *(f"{table}_pkey" for table in OWN_TABLES),
    }
)
"""The indexes and sequences of these tables. PostgreSQL names them like tables."""
