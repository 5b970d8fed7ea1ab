"""Give a tier k workers, each of its whole quantum, within its share; for a time, or until somebody changes it.

The next incarnation with k workers is started and warmed, the tier is handed over and verified, then the old slots are released. When
the time is over the controller does the same by itself, back to the number that holds then.
"""

from ops.model.operation import ChangeKind
from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook

with runbook("scale_tier", doc=__doc__, params={"tier": forms.tenant(), "k": forms.amount(), "until": forms.until()}) as dag:
    carry_out(ChangeKind.SCALE, tier="{{ params.tier }}", k="{{ params.k }}", until="{{ params.until }}")
