"""The services of the embedded platform, one module each: settings, command, check that it answers.

`local.start.service` describes a service; `postgres` is a short example.
"""
