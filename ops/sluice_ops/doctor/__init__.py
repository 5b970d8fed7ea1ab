"""Checks of a host and of the services that a site names. Start with `host_checks`."""
