"""The DAGs of Sluice for Airflow: runbooks, shifts, tiers and complete hours."""

from sluice_airflow.dags import runbooks

runbooks()
