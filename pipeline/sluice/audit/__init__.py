"""The audit: a process that finds lost records while the pipeline runs (decision 9).

Each input record of a tier must have come out, be in quarantine, or be left out on purpose. The
audit, `python -m sluice.audit`, reads what the tiers wrote every few seconds, and does not ask the
tiers. Start with `__main__`. `stream_audit` checks tiers that write streams, `table_audit` checks
tiers that write a sink; `coverage` has the arithmetic, and `book` the saved results.
"""
