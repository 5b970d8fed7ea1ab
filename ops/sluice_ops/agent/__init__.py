"""The agent: one process per host that starts and stops the units in `assignments/<host>`.

The agent runs each unit in a container with limits, and reports the state of all units to the
channel. It treats drivers and slots as processes and knows nothing about tiers.

Start with `units.reconcile`: this pure function decides every action. `loop` calls it,
`units.process_control` carries the actions out, `host` keeps files and reads the kernel, `limits`
sets control groups, and `watch` finds units that hang, starve or fill the disk.
"""
