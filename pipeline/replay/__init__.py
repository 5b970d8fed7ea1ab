"""Putting records into their stream again: those that were bad, or all from a place or a time on (decision record 0013)."""
