"""Planning of changes: the moves, refusals and layers of each change.

Start with `plan`. `kinds` has one module for each kind of change.
"""
