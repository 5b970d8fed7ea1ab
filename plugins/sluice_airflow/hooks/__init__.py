"""The hook: Sluice's control channel as a connection of Airflow."""
