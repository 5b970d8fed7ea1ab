"""Decisions about tiers and hosts, made in every pass of the controller. Start with `tier_lifecycle`."""
