"""Progress and lag of a running query. Pure."""
