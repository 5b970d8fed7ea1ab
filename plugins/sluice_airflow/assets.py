"""Assets: events by which one DAG starts another."""

from airflow.sdk import Asset

from sluice_airflow.forms import dag_id


def slots_lent(sluice_conn_id: str | None = None) -> Asset:
    """Return the asset of the event that a shift has lent slots to the tenant `batch`, so that
    batch jobs may start.
    """
    return Asset(
        name=dag_id("slots_lent_to_batch", sluice_conn_id),
        uri=f"sluice://{_site(sluice_conn_id)}shares/batch",
    )


def hour_complete(sluice_conn_id: str | None = None) -> Asset:
    """Return the asset of the event that all records of some hours have left all tiers.

    They arrived between the event's `extra["from"]` and `extra["until"]`, whole hours in UTC.
    """
    return Asset(
        name=dag_id("hour_complete", sluice_conn_id), uri=f"sluice://{_site(sluice_conn_id)}pipeline/hours"
    )


def _site(sluice_conn_id: str | None) -> str:
    return "" if sluice_conn_id is None else f"{sluice_conn_id}/"


SLOTS_LENT = slots_lent()
"""`slots_lent()` of the pipeline of this process's environment."""
HOUR_COMPLETE = hour_complete()
"""`hour_complete()` of the pipeline of this process's environment."""
