"""The nightly batch job: reads the archive, and writes the table `campaign_daily` to PostgreSQL.

`night_shift` starts it when slots are lent, or a person triggers it. It waits in the queue of batch
jobs until a slot is free. It never disturbs the tiers: it runs only on slots that are lent to the
tenant `batch`.
"""

from sluice_airflow.assets import SLOTS_LENT, table
from sluice_airflow.dags.parts import BATCH_FAILED, runbook
from sluice_airflow.operators.batch import SHORT_LIVED, SluiceBatchOperator

with runbook("nightly_report", doc=__doc__, schedule=[SLOTS_LENT], tags=("batch",)) as dag:
    SluiceBatchOperator(
        task_id="report",
        module="hits.nightly_report",
        inlets=[table("delivered")],
        outlets=[table("campaign_daily")],
        conf=SHORT_LIVED,
        retries=3,
        on_failure_callback=BATCH_FAILED,
    )
