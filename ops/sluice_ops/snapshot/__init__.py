"""Frozen views of the channel and the rules in force, read once for each decision.

Start with `view`.
"""
