"""Sluice's page in Airflow's interface. Start with `app`."""
