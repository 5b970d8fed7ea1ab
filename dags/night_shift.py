"""Lend slots to batch jobs for the night, as the shift `night` of the site file says.

It runs at the shift's hour, or when a person triggers it. Tiers shrink to fewer workers, without
loss. The free slots then belong to the tenant `batch`, and `nightly_report` starts. `day_shift`
takes the slots back.
"""

from sluice_airflow import forms
from sluice_airflow.assets import SLOTS_LENT
from sluice_airflow.runbooks import carry_out, runbook

with runbook("night_shift", doc=__doc__, schedule=forms.schedule("night"), tags=("runbook", "shift")) as dag:
    carry_out("shift", last={"outlets": [SLOTS_LENT]}, shift="night")
