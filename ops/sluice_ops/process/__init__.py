"""Parts of every long-running process: watchdog of the working loop, metrics server, durations."""
