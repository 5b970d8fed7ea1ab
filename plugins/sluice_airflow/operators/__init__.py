"""Operators: the tasks of runbooks and of tiers. Start with `steps`."""
