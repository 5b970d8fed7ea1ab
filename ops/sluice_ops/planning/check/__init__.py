"""The check of a plan, independent of the planner, so that a bug of the planner is found.

Start with `checker`.
"""
