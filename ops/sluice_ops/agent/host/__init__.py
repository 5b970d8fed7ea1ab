"""The host that an agent looks after: its facts, its presence in the channel, its processes and files. Start with `facts`."""
