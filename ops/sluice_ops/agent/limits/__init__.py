"""Limits of units: control groups, cores of their own, network. Start with `control_groups`."""
