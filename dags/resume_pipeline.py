"""Resume a paused tier, or all of them, nearest the end first, one tier at a time, each where it stopped."""

from ops.model.operation import ChangeKind
from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook

with runbook("resume_pipeline", doc=__doc__, params={"tier": forms.one_tier()}) as dag:
    carry_out(ChangeKind.RESUME, tier="{{ params.tier or '' }}")
