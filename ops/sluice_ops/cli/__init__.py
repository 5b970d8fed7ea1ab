"""The commands of `sluice`, except those of the embedded platform.

Start in `sluice_ops.main`, which lists all commands. Each command imports its modules when it runs,
so `--help` answers at once.
"""
