"""Hand a tier over to other code: the release that was published last, or the one that is named.

It is refused when other tiers, the table or the state could not go on with it. After the hand-over it is tried: when it does not do as
well as before, the tier goes back to the code that it ran, by itself, and the run is red.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("upgrade_tier", doc=__doc__, params={"tier": forms.tier(), "release": forms.release()}) as dag:
    carry_out(ChangeKind.UPGRADE, tier="{{ params.tier }}", release="{{ params.release }}")
