"""Simulate a cluster of any size on one machine, to measure how many hosts Sluice can manage.

Controllers and ZooKeeper are real. The simulated agents register and report like real ones, but run
no units. `sluice simulate` runs the simulation. Start with `run`.
"""
