"""Take the slots back that batch jobs were lent, as the site file's shift `day` says; at its hour, or by hand.

Batch tasks may end first; at the run's deadline their workers are decommissioned. Then the tiers have their slots again.
"""

from ops.model.operation import ChangeKind
from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook

with runbook("day_shift", doc=__doc__, schedule=forms.schedule("day"), tags=("runbook", "shift")) as dag:
    carry_out(ChangeKind.SHIFT, shift="day")
