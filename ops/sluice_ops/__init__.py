"""The control plane of Sluice: decides which hosts run which tiers, and moves tiers without loss.

Start with `controller`, which decides, and `agent`, which starts and stops units on one host.
"""
