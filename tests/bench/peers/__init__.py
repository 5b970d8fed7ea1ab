"""Other systems next to Sluice.

Each runs the chain `raw` to `three` on the bench's broker, and is started, moved, killed and
stopped in its own way.
"""
