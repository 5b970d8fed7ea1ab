"""The tier driver: one process for each incarnation, which an agent starts as `python -m
sluice.driver`.

- `process`: the incarnation from start to end. Start reading with `process.run` and `process.life`.
- `engine`: the query of a tier, into streams or into a sink, without or with state.
- `control`: orders and reports in ZooKeeper, the right to write, restarts.
- `spark`: the JVM, the session, slots and workers.
- `state`: checkpoints of tiers with state.
- `positions`: how far output is complete, and how far a tier lags.
"""
