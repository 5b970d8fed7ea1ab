"""Parts of every long-running process: a log, a watchdog, a metrics server, and ages
of timestamps.

Start with `watchdog`, which ends a process whose loop hangs.
"""
