"""Drain a host, reboot it, check its health, and let it be used again: one run, records flowing all the time.

The steps are those of `drain_host`, then `reboot` (the host's agent runs the site's reboot command, and is waited for), `health` and
`return`. The reboot only happens after the hand-over was verified.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("reboot_host", doc=__doc__, params={"host": forms.host()}) as dag:
    carry_out(ChangeKind.REBOOT, host="{{ params.host }}")
