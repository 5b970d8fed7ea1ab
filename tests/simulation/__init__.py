"""A simulated pipeline: a channel in memory, agents that follow assignments, drivers that follow their fence."""
