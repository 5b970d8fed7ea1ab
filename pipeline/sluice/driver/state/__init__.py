"""Checkpoints of state: where they lie, which one is taken, repartitioning. Start with `checkpoints`."""
