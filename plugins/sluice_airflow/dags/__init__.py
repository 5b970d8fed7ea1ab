"""The DAGs that Sluice brings: runbooks, shifts, tiers, and complete hours.

A file of Airflow's DAGs folder calls `runbooks`, and Airflow adds the DAGs to this file. `parts`
has the tasks that runbooks share.
"""

from sluice_airflow.dags import burst, fleet, follow, hours, replay, scaler, shifts, tiers
from sluice_airflow.dags.parts import of_kind
from sluice_airflow.forms import Pipeline
from sluice_ops.planning.changes.kinds import KINDS


def runbooks(sluice_conn_id: str | None = None) -> None:
    """Make the DAGs of one pipeline: of all kinds of change that name a runbook, and all others.

    The connection names the pipeline's files, and its id stands before the ids of the DAGs. None:
    the pipeline of this process's environment.
    """
    pipeline = Pipeline.of(sluice_conn_id)
    for kind in KINDS.values():
        if kind.runbook and kind is not fleet.NEW_HOSTS:
            of_kind(kind, pipeline)
    burst.make_burst(pipeline)
    burst.make_leave(pipeline)
    burst.make_reap(pipeline)
    fleet.make(pipeline)
    follow.make(pipeline)
    scaler.make(pipeline)
    shifts.make(pipeline)
    hours.make(pipeline)
    replay.make(pipeline)
    tiers.make(pipeline)
