"""Orders of the controller, the right to write, and restarts. Start with `control_channel`."""
