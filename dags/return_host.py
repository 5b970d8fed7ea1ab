"""Let a drained or cordoned host be used again, after a check that its agent answers and its capacity is there.

Nothing is moved onto it by this: the next change, or a failure elsewhere, places on it.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("return_host", doc=__doc__, params={"host": forms.host()}) as dag:
    carry_out(ChangeKind.RETURN, host="{{ params.host }}")
