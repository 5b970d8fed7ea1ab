"""A simulated pipeline for tests of the controller: a channel in memory, agents that follow
assignments, and drivers that follow their owner record.

Start with `world.World`.
"""
