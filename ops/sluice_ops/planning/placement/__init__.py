"""Placement of drivers and slots on hosts.

Start with `cluster` for the data, then read `solver`.
"""
