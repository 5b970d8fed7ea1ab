"""Tell that an hour is complete: everything that arrived before its end has gone through every tier, as the audit knows it.

A job that needs whole hours has `schedule=[HOUR_COMPLETE]` (from `sluice_airflow.assets`) and finds in the event which they are, most
often one: `extra["from"]` and `extra["until"]`, in UTC. An hour that is late fails its run and alerts; a later event begins with it, so
that no hour is left out.
"""

from datetime import timedelta

from airflow.sdk import DAG

from sluice_airflow.operators.hours import HourOperator
from sluice_airflow.runbooks import HOUR_LATE, RETRIES, RETRY_SECONDS

with DAG(
    "hour_complete",
    description=(__doc__ or "").splitlines()[0],
    doc_md=__doc__,
    schedule="0 * * * *",
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    tags=["sluice", "batch"],
) as dag:
    HourOperator(
        task_id="tell",
        owner="sluice",
        retries=RETRIES,
        retry_delay=timedelta(seconds=RETRY_SECONDS),
        on_failure_callback=HOUR_LATE,
    )
