"""Placing driver and slots on hosts. Start with `cluster` for the words, then `solver`."""
