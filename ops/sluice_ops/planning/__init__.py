"""Pure decisions: how many slots everyone has, on which hosts, and by which steps to get there. No I/O, no clock, no environment.

Called by the controller, which feeds it one snapshot, and by tests, which feed it anything.
"""
