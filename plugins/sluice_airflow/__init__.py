"""Sluice in Airflow: operators, triggers, hook and notifier, and the pages of its UI."""
