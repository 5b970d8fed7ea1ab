"""The night's batch job: reads the archive and writes `campaign_daily` to PostgreSQL, on the slots that were lent to `batch`.

Started by `night_shift` when its slots are lent, or by hand. When no slot is lent it fails at once and says so; records keep flowing
in every case, because it only ever runs on slots that no tier has.
"""

from sluice_airflow.assets import SLOTS_LENT
from sluice_airflow.operators.report import ReportOperator
from sluice_airflow.runbooks import REPORT_FAILED, runbook

with runbook("nightly_report", doc=__doc__, schedule=[SLOTS_LENT], tags=("batch",)) as dag:
    ReportOperator(task_id="report", retries=1, on_failure_callback=REPORT_FAILED)
