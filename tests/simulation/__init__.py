"""A pipeline that can be simulated in milliseconds: a channel in memory, agents that follow assignments, drivers that follow their fence."""
