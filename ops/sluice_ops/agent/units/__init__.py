"""Start and stop the units that the controller assigned to a host.

Start with `reconcile`: it decides. `process_control` carries out, and `commands` makes the command
lines.
"""
