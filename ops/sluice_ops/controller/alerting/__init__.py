"""Alerts: which conditions hold, the turn that tells them, and the delivery to people."""
