"""Give a tier k more workers on EC2: launch instances, wait for their agents, and hand the tier over to the larger placement.

| step | what happens |
|---|---|
| quota | how many instances k workers need, and whether the site's limit allows them; in a dry run also the plan, as if they were there |
| launch | the instances are launched, with a token of this run: once, however often the task is tried |
| wait_for_host | each instance's agent has registered its host |
| preflight … release | as in every runbook: plan, warm, hand over, verify, release |
| abort, terminate | only when a task failed or a person ended the run: back to what runs, and no instance of this run is left |

`leave_ec2` goes back.
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
