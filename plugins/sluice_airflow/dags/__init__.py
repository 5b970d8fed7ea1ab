"""The DAGs that Sluice brings: runbooks, shifts, tiers, and complete hours.

A file of Airflow's DAGs folder calls `runbooks`, and Airflow adds the DAGs to this file. `parts`
has the tasks that runbooks share.
"""

from sluice_airflow.dags import burst, hours, shifts, tiers
from sluice_airflow.dags.parts import of_kind
from sluice_ops.planning.changes.kinds import KINDS


def runbooks() -> None:
    """Make the DAGs of all kinds of change that name a runbook, and all others."""
    for kind in KINDS.values():
        if kind.runbook:
            of_kind(kind)
    burst.make_burst()
    burst.make_leave()
    shifts.make_night()
    shifts.make_day()
    hours.make()
    tiers.make()
