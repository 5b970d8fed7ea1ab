"""Give a tier k workers, each of its whole quantum, within its share.

The next incarnation with k workers is started and warmed, the tier is handed over and verified, then the old slots are released.
"""

from ops.model.operation import ChangeKind
from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook

with runbook("scale_tier", doc=__doc__, params={"tier": forms.tier(), "k": forms.k()}) as dag:
    carry_out(ChangeKind.SCALE, tier="{{ params.tier }}", k="{{ params.k }}")
