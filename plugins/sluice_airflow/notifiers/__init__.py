"""Notifiers: e-mails and webhooks that tell people about a failed task."""
