"""The DAGs of EC2: give a tier more workers there, leave EC2, and terminate orphaned instances."""

from airflow.sdk import chain

from sluice_airflow import forms
from sluice_airflow.dags.parts import (
    REAP_FAILED,
    TERMINATE_FAILED,
    finish,
    finish_in_any_case,
    hourly,
    runbook,
    step_tasks,
)
from sluice_airflow.operators.burst import (
    ApprovalOperator,
    LaunchOperator,
    QuotaOperator,
    ReapOperator,
    TakeBackOperator,
    TerminateOperator,
    WaitForHostOperator,
)
from sluice_ops.model.change import Step
from sluice_ops.planning.changes.kinds import KINDS

KIND = KINDS["burst"]
BURST = """Give a tier k more workers on EC2.

The runbook launches instances, waits for their agents, and gives the tier workers there: in place,
or by a handover.

| task | what happens |
|---|---|
| quota | computes how many instances k workers need, and what they cost |
| approval | waits if the site file says that another person has to approve the burst |
| launch | launches the instances; a retry of the task launches no instance twice |
| wait_for_host | waits until the agent of each instance has registered its host |
| preflight … release | as in every runbook: plan, warm, change the tier, verify, release |
| abort, terminate | after a failed task or an ended run: undo, terminate the instances |

The runbook `leave_ec2` ends the burst and terminates the instances.
"""
LEAVE = """Leave EC2: take the tiers' workers off EC2, then terminate the instances without units.

With a tier, only its burst ends, or k workers of it. No record is lost. The hosts of the terminated
instances are retired.
"""
REAP = """Terminate orphaned EC2 instances, and retire the hosts of ended instances.

Nobody owns an instance without a tier whose burst was aborted, or that has run for 30 minutes
without an agent or without a known burst. The DAG runs each hour. The run is skipped where EC2 may
not be asked.
"""


def make_burst(pipeline: forms.Pipeline) -> None:
    change = forms.templates(KIND)
    with runbook(
        forms.BURST_TO_EC2,
        doc=BURST,
        params=forms.fields(KIND, pipeline),
        sluice_conn_id=pipeline.sluice_conn_id,
        tags=("runbook", "ec2"),
    ):
        quota = QuotaOperator(task_id="quota", **change)
        spec = {"kind": KIND.name, **change}
        approval = ApprovalOperator(task_id="approval", step=Step.APPROVAL, change=spec)
        launch = LaunchOperator(task_id="launch")
        wait_for_host = WaitForHostOperator(task_id="wait_for_host")
        tasks = [quota, approval, launch, wait_for_host, *step_tasks(KIND.name, None, **change)]
        chain(*tasks)
        take_back = TakeBackOperator(task_id="terminate", on_failure_callback=TERMINATE_FAILED)
        finish_in_any_case(tasks, spec, take_back)


def make_reap(pipeline: forms.Pipeline) -> None:
    with hourly("reap_ec2", pipeline, doc=REAP, minute=17, tag="ec2"):
        ReapOperator(task_id="reap", on_failure_callback=REAP_FAILED)


def make_leave(pipeline: forms.Pipeline) -> None:
    kind = KINDS["leave"]
    fields = forms.templates(kind)
    with runbook(
        forms.LEAVE_EC2,
        doc=LEAVE,
        params=forms.fields(kind, pipeline),
        sluice_conn_id=pipeline.sluice_conn_id,
        tags=("runbook", "ec2"),
    ):
        change = {"kind": kind.name, **fields}
        steps = step_tasks(kind.name, None, **fields)
        terminate = TerminateOperator(
            task_id="terminate", change=change, on_failure_callback=TERMINATE_FAILED
        )
        chain(*steps, terminate)
        finish([*steps, terminate], change, aborts=steps)
