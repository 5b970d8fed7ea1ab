"""The shifts `night` and `day` of the site file: lend slots to batch jobs, and take them back."""

from sluice_airflow import forms
from sluice_airflow.assets import SLOTS_LENT
from sluice_airflow.dags.parts import carry_out, runbook

NIGHT = """Lend slots to batch jobs for the night, as the shift `night` of the site file says.

It runs at the shift's hour, or when a person triggers it. Tiers shrink to fewer workers, without
loss. The free slots then belong to the tenant `batch`, and every DAG with the schedule `SLOTS_LENT`
(from `sluice_airflow.assets`) starts. `day_shift` takes the slots back.
"""
DAY = """Take slots back from batch jobs, as the shift `day` of the site file says.

It runs at the shift's hour, or when a person triggers it. Running batch tasks may first end, within
`reclaim_seconds` of the site file. If another change is active, the shift waits for its end, up to
the run's deadline.
"""
TAGS = ("runbook", "shift")


def make_night() -> None:
    with runbook("night_shift", doc=NIGHT, schedule=forms.schedule("night"), tags=TAGS):
        carry_out("shift", last={"outlets": [SLOTS_LENT]}, shift="night")


def make_day() -> None:
    with runbook("day_shift", doc=DAY, schedule=forms.schedule("day"), tags=TAGS):
        carry_out("shift", shift="day")
