"""Say that a lost host will not come back, so that what was on it goes on elsewhere.

One lost host needs no word from a person. When many are lost at once the brake holds what is on them where it is, for so many hardly die
together; `sluice status` names them. `sluice write-off` without a name writes all of them off.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("write_off_host", doc=__doc__, params={"host": forms.host()}) as dag:
    carry_out(ChangeKind.WRITE_OFF, host="{{ params.host }}")
