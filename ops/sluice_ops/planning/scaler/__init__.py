"""How many slots each tier needs for its load.

Start with `planner`, which decides. `signals` has its input, and `model.scaler` its output.
"""
