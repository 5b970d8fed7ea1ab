"""The DAG `hour_complete`, which other DAGs follow."""

from sluice_airflow.assets import tables
from sluice_airflow.dags.parts import HOUR_LATE, hourly
from sluice_airflow.forms import Pipeline
from sluice_airflow.operators.hours import HourOperator

DOC = """Announce complete hours: by the audit, all records that arrived before the hour's end have left
every tier.

A DAG that needs whole hours has `schedule=[HOUR_COMPLETE]` (from `sluice_airflow.assets`). The
event names its hours, most often one, in UTC: `extra["from"]` and `extra["until"]`. Each table that
a tier writes gets the same event: `schedule=[table("delivered")]`. For a tier whose state goes by
event time, `extra["events_until"]` says up to when no event is missing. A late hour fails its run
and alerts. The next event begins with the late hour, so that no hour is left out.
"""


def make(pipeline: Pipeline) -> None:
    with hourly("hour_complete", pipeline, doc=DOC, minute=0, tag="batch"):
        HourOperator(
            task_id="tell",
            outlets={
                asset: tier.name
                for tier in pipeline.published
                for asset in tables([tier], pipeline.sluice_conn_id)
            },
            on_failure_callback=HOUR_LATE,
        )
