"""A simulated pipeline under traces of load, Sluice's scaler and other scalers, and a judge.

`python -m tests.simulation.scaling` writes the tables and plots of docs/scaling.md.
"""
