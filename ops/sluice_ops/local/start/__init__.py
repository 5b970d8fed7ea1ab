"""How the embedded platform is started: ordered steps, supervisord. Start with `steps`."""
