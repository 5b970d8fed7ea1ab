"""The vocabulary of a pipeline's author: tiers, streams, groupings, hooks, and the base class of
sinks. Start with `declarations`; authors import these names from `sluice`.
"""
