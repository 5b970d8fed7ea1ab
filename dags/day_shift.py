"""Take slots back from batch jobs, as the shift `day` of the site file says.

It runs at the shift's hour, or when a person triggers it. Running batch tasks may first end, within
`reclaim_seconds` of the site file. If another change is active, the shift waits for its end, up to
the run's deadline.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook

with runbook("day_shift", doc=__doc__, schedule=forms.schedule("day"), tags=("runbook", "shift")) as dag:
    carry_out("shift", shift="day")
