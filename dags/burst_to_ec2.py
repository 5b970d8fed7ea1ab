"""Give a tier k more workers on EC2.

The runbook launches instances, waits for their agents, and hands the tier over to the larger
placement.

| task | what happens |
|---|---|
| quota | computes how many instances k workers need, and checks the site file's limit |
| launch | launches the instances; a retry of the task launches no instance twice |
| wait_for_host | waits until the agent of each instance has registered its host |
| preflight … release | as in every runbook: plan, warm, hand over, verify, release |
| abort, terminate | after a failed task or an ended run: undo, terminate the instances |

The runbook `leave_ec2` hands the tier back to the site's hosts and terminates the instances.
"""

from airflow.sdk import chain

from sluice_airflow import forms
from sluice_airflow.operators.burst import (
    LaunchOperator,
    QuotaOperator,
    TakeBackOperator,
    WaitForHostOperator,
)
from sluice_airflow.runbooks import TERMINATE_FAILED, finish_in_any_case, runbook, step_tasks
from sluice_ops.planning.changes.kinds import KINDS

KIND = KINDS["burst"]
CHANGE = forms.templates(KIND)

with runbook(
    "burst_to_ec2", doc=__doc__, params=forms.fields(KIND, tier="enrich"), tags=("runbook", "ec2")
) as dag:
    quota = QuotaOperator(task_id="quota", **CHANGE)
    launch = LaunchOperator(task_id="launch")
    wait_for_host = WaitForHostOperator(task_id="wait_for_host")
    tasks = [quota, launch, wait_for_host, *step_tasks(KIND.name, **CHANGE)]
    chain(*tasks)
    take_back = TakeBackOperator(task_id="terminate", on_failure_callback=TERMINATE_FAILED)
    finish_in_any_case(tasks, {"kind": KIND.name, **CHANGE}, take_back)
