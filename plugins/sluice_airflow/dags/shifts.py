"""The shifts `night` and `day` of the site file: lend slots to batch jobs, and take them back."""

from sluice_airflow.assets import slots_lent
from sluice_airflow.dags.parts import carry_out, runbook
from sluice_airflow.forms import Pipeline

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


def make(pipeline: Pipeline) -> None:
    conn = pipeline.sluice_conn_id
    with runbook(
        "night_shift", doc=NIGHT, schedule=pipeline.schedule("night"), sluice_conn_id=conn, tags=TAGS
    ):
        carry_out("shift", last={"outlets": [slots_lent(conn)]}, shift="night")
    with runbook("day_shift", doc=DAY, schedule=pipeline.schedule("day"), sluice_conn_id=conn, tags=TAGS):
        carry_out("shift", shift="day")
