"""The nightly batch job: reads the archive, and writes the table `campaign_daily` to PostgreSQL.

`night_shift` starts it when slots are lent, or a person triggers it. It fails at once if no slot is
lent. It never disturbs the tiers: it runs only on slots that are lent to the tenant `batch`.
"""

from sluice_airflow.assets import SLOTS_LENT
from sluice_airflow.dags.parts import BATCH_FAILED, runbook
from sluice_airflow.operators.batch import BatchJobOperator

with runbook("nightly_report", doc=__doc__, schedule=[SLOTS_LENT], tags=("batch",)) as dag:
    BatchJobOperator(
        task_id="report", module="hits.nightly_report", retries=1, on_failure_callback=BATCH_FAILED
    )
