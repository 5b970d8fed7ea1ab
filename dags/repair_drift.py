"""Move what is not where a plan would have it, with as few moves as can be, records flowing; one tier, or all of them.

A dry run says what has drifted, and what would be moved. What cannot be repaired now is said with the reason, and the rest is repaired.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("repair_drift", doc=__doc__, params={"tier": forms.one_tier()}) as dag:
    carry_out(ChangeKind.REPAIR, tier="{{ params.tier or '' }}")
