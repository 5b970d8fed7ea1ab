"""The exit codes of the command `sluice`, which scripts and Airflow's tasks read."""

OK = 0
FAILED = 1
"""The operation failed, or Sluice itself has an error."""
WRONG_USAGE = 2
AWAY = 3
"""A service that the command needs does not answer."""
INTERRUPTED = 130
"""Ctrl-C, or a signal from outside."""

CODES = "Exit codes: 0 done, 1 the operation failed, 2 wrong usage, 3 the platform does not answer."
