"""Posting operations to the controller, and joining hosts. Start with `requests`."""
