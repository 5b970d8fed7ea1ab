"""Scalers behind one protocol: Sluice's planner, and others after their documentation."""
