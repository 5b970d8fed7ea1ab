"""The DAG `hour_complete`, which other DAGs follow."""

from datetime import timedelta

from airflow.sdk import DAG

from sluice_airflow.dags.parts import HOUR_LATE, RETRIES, RETRY_SECONDS, tags
from sluice_airflow.forms import Pipeline
from sluice_airflow.operators.hours import HourOperator

DOC = """Announce complete hours: by the audit, all records that arrived before the hour's end have left
every tier.

A DAG that needs whole hours has `schedule=[HOUR_COMPLETE]` (from `sluice_airflow.assets`). The
event names its hours, most often one, in UTC: `extra["from"]` and `extra["until"]`. A late hour
fails its run and alerts. The next event begins with the late hour, so that no hour is left out.
"""


def make(pipeline: Pipeline) -> None:
    with DAG(
        pipeline.dag_id("hour_complete"),
        description=DOC.splitlines()[0],
        doc_md=DOC,
        schedule="0 * * * *",
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=tags(("batch",), pipeline.sluice_conn_id),
    ):
        HourOperator(
            task_id="tell",
            sluice_conn_id=pipeline.sluice_conn_id,
            owner="sluice",
            retries=RETRIES,
            retry_delay=timedelta(seconds=RETRY_SECONDS),
            on_failure_callback=HOUR_LATE,
        )
