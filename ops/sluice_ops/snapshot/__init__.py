"""The channel as typed views, read once for each decision, and the rules in force. Start with `view`."""
