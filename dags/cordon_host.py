"""Have nothing new placed on a host until it is returned; what runs there goes on.

`drain_host` also moves what runs there; `return_host` lets the host be used again.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("cordon_host", doc=__doc__, params={"host": forms.host()}) as dag:
    carry_out(ChangeKind.CORDON, host="{{ params.host }}")
