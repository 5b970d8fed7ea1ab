"""Resume a paused tier, or all of them, nearest the end first, one tier at a time, each where it stopped."""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook("resume_pipeline", doc=__doc__, params={"tier": forms.one_tier()}) as dag:
    carry_out(ChangeKind.RESUME, tier="{{ params.tier or '' }}")
