"""The sinks: PostgreSQL tables and HTTP services, and the ledger that makes their batches exact.

Start with `table` (what a sink writes), then `ledger` (the transaction of a batch).
"""
