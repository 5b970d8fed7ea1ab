"""Leave EC2: hand every tier over to the site's own hosts, then terminate the instances.

No record is lost.
"""

from airflow.sdk import chain

from sluice_airflow.operators.burst import TerminateOperator
from sluice_airflow.runbooks import TERMINATE_FAILED, finish, runbook, step_tasks

with runbook("leave_ec2", doc=__doc__, tags=("runbook", "ec2")) as dag:
    steps = step_tasks("leave")
    terminate = TerminateOperator(task_id="terminate", on_failure_callback=TERMINATE_FAILED)
    chain(*steps, terminate)
    finish([*steps, terminate], {"kind": "leave"}, aborts=steps)
