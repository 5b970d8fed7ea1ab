"""The Airflow provider: DAGs, operators, triggers, hook, notifier, and a page in Airflow's UI.

Start with `dags`.
"""
