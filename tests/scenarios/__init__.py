"""Tests of what users do and what fails, on the complete platform.

Start with `test_runbooks`; `live` is the running platform, and `oracle` checks that no record is
lost or duplicated.
"""
