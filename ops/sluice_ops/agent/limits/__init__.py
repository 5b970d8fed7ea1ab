"""Limit the CPU, memory, threads, disk access and network of units.

Start with `control_groups`, whose protocol `Containers` the agent uses. `cpusets` adds processors
for single units, and `network` divides the host's link. Both log errors and never stop an agent.
"""
