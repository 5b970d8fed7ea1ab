"""Checks of a host and of the services that its site uses. Checks read only; they change nothing.

`host_checks` runs all checks of a real host (`sluice doctor --host`): start there. The embedded
platform has its own doctor in `sluice_ops.local.doctor`, which uses the checks of this package too.
"""
