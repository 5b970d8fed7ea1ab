"""Sensors, for DAGs of your own that wait for the pipeline."""
