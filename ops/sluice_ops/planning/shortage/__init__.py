"""Decisions when room is short: slots of batch, fewer workers, and minimums first.

Start with `fitting`.
"""
