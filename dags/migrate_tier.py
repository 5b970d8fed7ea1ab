"""Move a tier to a host, a zone or a label, and have it stay there: `h2`, `zone:ec2`, `label:fast`.

The next incarnation is started and warmed there, the tier is handed over and verified, then the old slots are released.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("migrate_tier", doc=__doc__, params={"tier": forms.tier(), "to": forms.to()}) as dag:
    carry_out(ChangeKind.MIGRATE, tier="{{ params.tier }}", to="{{ params.to }}")
