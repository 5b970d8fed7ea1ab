"""The nightly batch job: reads the archive, and writes the table `campaign_daily` to PostgreSQL.

`night_shift` starts it when slots are lent, or a person triggers it. It fails at once if no slot is
lent. It never disturbs the tiers: it runs only on slots that are lent to the tenant `batch`.
"""

from sluice_airflow.assets import SLOTS_LENT
from sluice_airflow.operators.report import ReportOperator
from sluice_airflow.runbooks import REPORT_FAILED, runbook

with runbook("nightly_report", doc=__doc__, schedule=[SLOTS_LENT], tags=("batch",)) as dag:
    ReportOperator(task_id="report", retries=1, on_failure_callback=REPORT_FAILED)
