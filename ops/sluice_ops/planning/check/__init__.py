"""The independent check of a plan. Start with `checker`."""
