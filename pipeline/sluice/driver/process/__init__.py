"""The process of a driver: life, heartbeat, progress report, metrics. Start with `run`."""
