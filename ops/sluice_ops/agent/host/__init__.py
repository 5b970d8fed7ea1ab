"""The agent's host: facts, presence in the channel, processes, files and reboots.

Start with `facts`. `presence` talks to the channel, and `store` keeps files.
"""
