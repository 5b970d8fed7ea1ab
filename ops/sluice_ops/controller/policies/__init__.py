"""The policies decide about tiers and hosts in every pass of the controller.

Start with `tier_lifecycle`.
"""
