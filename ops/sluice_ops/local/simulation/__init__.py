"""A cluster of any size on one machine: real controllers on a real ZooKeeper, and agents that hold what real ones hold but do no work.

Called by `sluice simulate`, which says how far the control plane carries before anybody buys the hosts.
"""
