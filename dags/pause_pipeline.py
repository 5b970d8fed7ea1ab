"""Pause a tier, or every tier, where nothing is half done, nearest the pipeline's end first, one at a time. Slots and positions are kept.

Records wait in the streams meanwhile; `resume_pipeline` goes on exactly where it stopped. Single workers of a tier without state may be
paused too, while the others work on.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook(
    "pause_pipeline", doc=__doc__, params={"tier": forms.one_tier(), "workers": forms.workers()}
) as dag:
    carry_out(ChangeKind.PAUSE, tier="{{ params.tier or '' }}", workers="{{ params.workers }}")
