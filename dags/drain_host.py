"""Move everything off a host, with records flowing and none lost, and leave the host drained.

| step | what happens |
|---|---|
| preflight | checks the host, makes the plan, takes the maintenance lock |
| cordon | nothing new is placed on the host |
| prepare | the next incarnations are started and warmed on other hosts, one tier after the other, beside the ones that run |
| cut_over | each tier is handed over, nearest the pipeline's end first, one at a time |
| verify | the receipts balance: where the old ones stopped is where the new ones went on |
| release | the old ones' slots are taken away; the host is drained |
| abort | only when a step failed: back to the incarnations that run |

Afterwards: `return_host` lets the host be used again. A dry run shows the plan (log and XCom of `preflight`) and moves nothing.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("drain_host", doc=__doc__, params={"host": forms.host()}) as dag:
    carry_out(ChangeKind.DRAIN, host="{{ params.host }}")
