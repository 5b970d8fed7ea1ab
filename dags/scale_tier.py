"""Give a tier k workers, each of its whole quantum, within its share; for a time, or until somebody changes it.

The next incarnation with k workers is started and warmed, the tier is handed over and verified, then the old slots are released. When
the time is over the controller does the same by itself, back to the number that holds then. A minimum and a maximum that are given hold
as long as the number does.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

FORM = {
    "tier": forms.tenant(),
    "k": forms.amount(),
    "minimum": forms.minimum(),
    "maximum": forms.maximum(),
    "layer": forms.layer(),
    "until": forms.until(),
}

with runbook("scale_tier", doc=__doc__, params=FORM) as dag:
    carry_out(ChangeKind.SCALE, **{field: f"{{{{ params.{field} }}}}" for field in FORM})
