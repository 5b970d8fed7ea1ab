"""The Airflow provider: operators, triggers, hook, notifier, and a page in Airflow's UI.

Start with `runbooks`.
"""
