"""Sluice's page in Airflow's user interface. Start with `app`."""
