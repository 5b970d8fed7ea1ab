"""Checks of a pipeline before anything runs: operators, shapes of records, state plans."""
