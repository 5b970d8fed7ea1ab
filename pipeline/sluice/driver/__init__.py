"""The tier driver: one process for each incarnation, started by an agent as `python -m sluice.driver TIER INCARNATION HEAP`.

`run` is one incarnation from its start to its end: `life` follows the owner record and moves from state to state; `realtime` and `batch`
run the query in the tier's mode; `follow` is its end of the control channel; `progress` and `handover` measure.
"""
