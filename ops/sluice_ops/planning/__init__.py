"""Pure decisions: how many slots each tenant gets, on which hosts, and which moves lead there.

No I/O, no clock, no environment. The controller calls this package with one snapshot; tests call it
with any input. Start with `changes.plan`, which plans one change. `placement` chooses hosts,
`shortage` decides where room is short, and `check` checks each plan independently.
"""
