"""Find units that hang, starve, or fill the host's disk.

Start with `heartbeats`. `disks` measures files, and `neighbours` measures processor time.
`liveness` and `starvation` are the pure rules.
"""
