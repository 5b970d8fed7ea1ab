"""The driver's process: life, heartbeat, progress report, metrics. Start with `run`."""
