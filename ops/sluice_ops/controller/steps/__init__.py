"""The steps of a change.

Each does what it can in this pass, and returns whether it waits, is done or failed.

A step is called in every pass until it has a result. It remembers nothing: all progress is in the
channel. Start with `preflight`, then `handover`.
"""
