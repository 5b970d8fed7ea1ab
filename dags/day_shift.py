"""Take the slots back that batch jobs were lent, as the site file's shift `day` says; at its hour, or by hand.

Batch tasks may end first, within the time that the site file gives them (`reclaim_seconds`); then the tiers have their slots again.
Where another change is at work at its hour, the shift waits for it to end, up to the run's deadline.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook

with runbook("day_shift", doc=__doc__, schedule=forms.schedule("day"), tags=("runbook", "shift")) as dag:
    carry_out("shift", shift="day")
