"""Events between the DAGs."""

from airflow.sdk import Asset

SLOTS_LENT = Asset(name="slots_lent_to_batch", uri="sluice://shares/batch")
"""Slots have been lent to the tenant `batch`: its jobs may start."""
HOUR_COMPLETE = Asset(name="hour_complete", uri="sluice://pipeline/hours")
"""Everything that arrived between `extra["from"]` and `extra["until"]` of the event, whole hours in UTC, has gone through all tiers."""
