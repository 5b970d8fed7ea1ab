"""Other systems beside ours: each runs the chain `raw` → `three` on the bench's broker, started, moved, killed and stopped in its way."""
