"""Notifiers: alerts of runbooks."""
