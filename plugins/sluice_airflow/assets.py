"""Events between the DAGs."""

from airflow.sdk import Asset

SLOTS_LENT = Asset(name="slots_lent_to_batch", uri="sluice://shares/batch")
"""Slots have been lent to the tenant `batch`: its jobs may start."""
