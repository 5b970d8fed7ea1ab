"""Lend slots to batch jobs for the night, as the site file's shift `night` says; at its hour, or by hand.

Tiers are handed over to fewer workers with nothing lost; their slots then belong to the tenant `batch`. When that is done,
`nightly_report` is started. `day_shift` takes the slots back.
"""

from sluice_airflow import forms
from sluice_airflow.assets import SLOTS_LENT
from sluice_airflow.runbooks import carry_out, runbook

with runbook("night_shift", doc=__doc__, schedule=forms.schedule("night"), tags=("runbook", "shift")) as dag:
    carry_out("shift", last={"outlets": [SLOTS_LENT]}, shift="night")
