"""Assets: events by which one DAG starts another."""

from airflow.sdk import Asset

SLOTS_LENT = Asset(name="slots_lent_to_batch", uri="sluice://shares/batch")
"""The night shift has lent slots to the tenant `batch`, so batch jobs may start."""
HOUR_COMPLETE = Asset(name="hour_complete", uri="sluice://pipeline/hours")
"""All records that arrived between the event's `extra["from"]` and `extra["until"]` have left all
tiers.

Both are whole hours in UTC.
"""
