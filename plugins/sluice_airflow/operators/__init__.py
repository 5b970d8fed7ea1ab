"""Operators that runbooks are made of. Start with `steps`."""
