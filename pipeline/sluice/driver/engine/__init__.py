"""The queries of a tier: into streams, into a sink, with state. Start with `contract`."""
