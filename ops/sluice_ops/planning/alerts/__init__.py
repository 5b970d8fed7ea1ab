"""Which alerts there are, and when each is told. Pure."""
