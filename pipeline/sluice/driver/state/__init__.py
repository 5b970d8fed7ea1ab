"""Checkpoints of state: where they are stored, which one a run begins from, repartitioning.

Start with `checkpoints`.
"""
