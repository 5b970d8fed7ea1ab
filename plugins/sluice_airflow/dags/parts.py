"""The parts of runbooks: one task for each step of a kind of change, then an abort after a failed
step.

`of_kind` makes the whole DAG of a kind. A runbook with further tasks, such as a burst, uses
`step_tasks`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, Param, TriggerRule, chain

from sluice_airflow import forms
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.operators.steps import (
    END,
    AbortOperator,
    BeginShiftOperator,
    NextStepOperator,
    StepOperator,
)
from sluice_ops.model.change import ChangeKind, Step
from sluice_ops.planning.changes.kind import Kind
from sluice_ops.planning.changes.kinds import KINDS

RETRIES = 12
"""Retries after temporary errors, such as ZooKeeper being away: two to five minutes in all."""
RETRY_SECONDS = 5
ACTIVE_SECONDS = 300
"""How long a task may occupy a worker.

The triggerer waits for the rest, up to the run's deadline.
"""

STEP_FAILED = SluiceNotifier(
    did="The run's task `abort` is aborting the change: every tier continues with its running incarnation.",
    do="Read the reason in the task's log. Remove the cause, then trigger the runbook again: "
    "a run executes each step only once.",
)
ABORT_FAILED = SluiceNotifier(
    did="The tiers run on as they are. This task's log says which of two cases it is. "
    "(1) No controller answered, and the change still holds the maintenance lock. "
    "(2) The change is undone, but a tier did not run within two minutes after that.",
    do="Check that a controller runs: `sluice status`. If the change is still active, end it: "
    "`sluice abort`. Otherwise find out why the tier that the log names does not run: "
    "`sluice status` shows its error, and `sluice logs` lists the logs of its driver and workers.",
)
BATCH_FAILED = SluiceNotifier(
    did="Nothing. The tiers are unaffected: batch jobs run only on slots that no tier holds.",
    do="Read the reason in the task's log. If the job got no slot in time, the log names the shift that "
    "lends slots, and `sluice batch` shows the queue. Then trigger the DAG again.",
)
HOUR_LATE = SluiceNotifier(
    did="Records flow on. A later run announces this hour together with its own, once both are complete.",
    do="Find the tier that lags: `sluice tiers` shows each tier's lag, and `sluice audit` shows up to when "
    "each tier is complete.",
)
TERMINATE_FAILED = SluiceNotifier(
    did="The tiers are unaffected: an instance that runs a tier is never terminated.",
    do="If the reason says `kept`, run leave_ec2: it moves the tier before it terminates the "
    "instance. Do not terminate that instance by hand. "
    "In all other cases instances may still run and cost money: "
    "check EC2, then clear this task, or terminate the instances in EC2.",
)
REAP_FAILED = SluiceNotifier(
    did="Nothing. The tiers are unaffected. Orphaned instances may still run and cost money.",
    do="Read the reason in the task's log, then run `sluice reap`; or wait for the next run in an hour.",
)
WISH_FAILED = SluiceNotifier(
    did="The tiers run on with the workers that they have. The scaler asks again in ten minutes.",
    do="Read the failed run of the runbook, which the task's link opens. Remove the cause, "
    "or keep the scaler from EC2: `sluice scaler advise TIER`.",
)
SHOWN_FAILED = SluiceNotifier(
    did="The change of the scaler goes on, without a run of follow_change that shows it. "
    "The next run of this DAG tries again.",
    do="Read the reason in the task's log, and remove the cause. Until then, `sluice changes` and "
    "`sluice operations CHANGE` show the change.",
)
FOLLOWED_FAILED = SluiceNotifier(
    did="The controller undid the change: every tier continues with its running incarnation. "
    "A change of the scaler begins again after ten minutes, if the scaler still wants it.",
    do="Read the reason in the task's log. Remove the cause, or keep the scaler from the tier: "
    "`sluice scaler advise TIER`.",
)
ROLL_FAILED = SluiceNotifier(
    did="No further host is rebooted. A batch that failed was undone, and the tiers run on.",
    do="Remove the cause that the reason names. Then trigger rolling_reboot again: with the same place, it "
    "continues with the hosts that are left.",
)
PIPELINE_FAILED = SluiceNotifier(
    did="The tier that failed runs its former release again. The tiers upgraded before it went back, "
    "or run the new release, as the reason says. Records flow.",
    do="Read the reason: it names the tier, why it failed, and the release of each tier. Correct the code, "
    "publish, and trigger upgrade_pipeline again. If going back stopped, trigger it with the same release.",
)
SPREAD_FAILED = SluiceNotifier(
    did="The host has passed its canary and stays in use. The rebalance was undone, and the tiers run on.",
    do="Remove the cause that the reason names. Then trigger rebalance_workers.",
)
DRAIN_FAILED = SluiceNotifier(
    did="The tiers that were paused are resumed, and records flow. If the reason says that taking back "
    "stopped, it names the tiers that are still paused.",
    do="Read the reason: it names the tier that did not get empty, how far it is and what holds it. Remove "
    "the cause, and trigger drain_to_empty again. Tiers that are still paused: `sluice resume`.",
)
REPLAY_FAILED = SluiceNotifier(
    did="The replay has stopped. What it has written stays, and live records flow on.",
    do="Read the reason in the task's log, and remove the cause. Then clear the task: the same replay "
    "continues.",
)
WAIT_FAILED = SluiceNotifier(
    did="The scaler still changes the workers at home, without runs in Airflow. No burst begins, and none "
    "ends: instances on EC2 run on and cost money. The next run of this DAG tries again.",
    do="Read the reason in the task's log, and remove the cause. Until then, run burst_to_ec2 and "
    "leave_ec2 yourself where `sluice scaler` asks for them.",
)
LAUNCH_FAILED = SluiceNotifier(
    did="Nothing. No start was requested, so the tier is unchanged.",
    do="Check that ZooKeeper answers: `sluice doctor`. Then clear this task.",
)
TIER_FAILED = SluiceNotifier(
    did="The action depends on the event. Failed tier: "
    "the controller starts the tier again, with growing delays; "
    "if the controller gives the tier up, this DAG requests a new start. Lost records: "
    "the tier runs on. Lagging tier: the pipeline's entry is throttled, and records wait in Kafka.",
    do="Failed tier: read the driver's error in this task's log or in `sluice status`. "
    "Correct the transform, its data or its resources; "
    "new code is published with `sluice publish` and taken by `sluice upgrade TIER`. "
    "Lost records: `sluice audit` names them. They are still in their stream: "
    "reprocess them with `sluice replay TIER`, then settle the loss. Lagging tier: "
    "repair the system that the tier writes to, or give the tier more slots (`sluice scale`); "
    "`sluice pause TIER` lets all other tiers run on.",
)


_TASKS = {
    Step.APPROVAL: "waits if another person has to approve the launch of instances",
    Step.PREFLIGHT: "checks the request, makes the plan, takes the maintenance lock",
    Step.CORDON: "closes the host to new work",
    Step.PREPARE: "starts and warms the next incarnations beside the running ones, one tier after the other",
    Step.CUT: "hands each tier over, or changes its workers in place, nearest the pipeline's end first",
    Step.VERIFY: "checks the receipts: each new incarnation began where the old one stopped",
    Step.TRIAL: "compares the new code with the old code for a while",
    Step.RELEASE: "frees the slots of the old incarnations",
    Step.REBOOT: "tells the host's agent to run the reboot command, and waits until the agent is back",
    Step.HEALTH: "checks that the host's agent answers, with the full capacity",
    Step.CANARY: "has a worker on the host process records in a warm-up, and removes the worker again",
    Step.RETURN: "opens the host to work again",
    Step.PAUSE: "stops each tier after a commit; the tier keeps its slots",
    Step.RESUME: "starts each tier again from its last commit",
    Step.WRITE_OFF: "starts the host's units on other hosts",
    Step.DECOMMISSION: "waits until the host's agent has ended, and the host is removed from the channel",
    Step.INJECT: "has the agent of the host inject the fault, once",
    Step.JUDGE: "measures what happened, and compares it with the promise; fails if a promise is broken",
    Step.ABORT: "only after a failed step: undoes the change; every tier keeps its running incarnation",
}
"""What each step's task does, for the page of a runbook."""


def task_id(step: Step) -> str:
    return "cut_over" if step is Step.CUT else step.value


def runbook(
    name: str,
    *,
    doc: str | None,
    params: dict[str, Param] | None = None,
    sluice_conn_id: str | None = None,
    **settings: Any,
) -> DAG:
    """Make the DAG of a runbook, with one run at a time and no catch-up of missed runs.

    Its tasks work on the pipeline of the connection, whose id is put before the name.
    """
    return DAG(
        forms.dag_id(name, sluice_conn_id),
        description=(doc or "").strip().splitlines()[0],
        doc_md=doc,
        params={**(params or {}), **forms.common_fields(), **(params or {})},
        schedule=settings.pop("schedule", None),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=tags(settings.pop("tags", ("runbook",)), sluice_conn_id),
        default_args={
            "owner": "sluice",
            "retries": RETRIES,
            "retry_delay": timedelta(seconds=RETRY_SECONDS),
            "execution_timeout": timedelta(seconds=ACTIVE_SECONDS),
            "on_failure_callback": STEP_FAILED,
            "sluice_conn_id": sluice_conn_id,
        },
        **settings,
    )


def hourly(name: str, pipeline: forms.Pipeline, *, doc: str, minute: int, tag: str) -> DAG:
    """Return a DAG that runs each hour without a person; its tasks are tried again."""
    return DAG(
        pipeline.dag_id(name),
        description=doc.splitlines()[0],
        doc_md=doc,
        schedule=f"{minute} * * * *",
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        default_args={
            "owner": "sluice",
            "retries": RETRIES,
            "retry_delay": timedelta(seconds=RETRY_SECONDS),
            "sluice_conn_id": pipeline.sluice_conn_id,
        },
        tags=tags((tag,), pipeline.sluice_conn_id),
    )


def tags(others: Sequence[str], sluice_conn_id: str | None) -> list[str]:
    """Return the tags of a DAG."""
    return ["sluice", *others, *([] if sluice_conn_id is None else [sluice_conn_id])]


def of_kind(kind: Kind, pipeline: forms.Pipeline) -> DAG:
    """Make the DAG of a kind of change: its form, its page and its steps."""
    with runbook(
        kind.runbook,
        doc=page(kind),
        params=forms.fields(kind, pipeline),
        sluice_conn_id=pipeline.sluice_conn_id,
    ) as dag:
        carry_out(kind.name, None, **forms.templates(kind))
    return dag


def page(kind: Kind, **more: str) -> str:
    """Return a runbook's page in Markdown: what the runbook does, and what each task does.

    `more` says it of the tasks after the steps.
    """
    steps, abort = ({task_id(step): _TASKS[step] for step in each} for each in (kind.steps, (Step.ABORT,)))
    rows = "\n".join(f"| {task} | {words} |" for task, words in {**steps, **more, **abort}.items())
    dry = "A dry run shows the plan (in the log and the XCom of `preflight`) and changes nothing."
    return f"{kind.summary}\n\n{kind.details}\n\n| task | what happens |\n|---|---|\n{rows}\n\n{dry}\n"


def step_tasks(kind: ChangeKind, last: dict[str, Any] | None = None, **fields: str) -> list[StepOperator]:
    """Make a task for each step of `kind`.

    `fields` are templates of the change's fields; `last` are settings of the last task.
    """
    change = {"kind": kind, **fields}
    steps = KINDS[kind].steps
    begins = BeginShiftOperator if "shift" in fields else StepOperator
    first = steps[0]
    return [
        begins(task_id=task_id(first), step=first, change=change, following=steps[1:]),
        *(
            NextStepOperator(
                task_id=task_id(step),
                step=step,
                change=change,
                first=first,
                then=then,
                **((last or {}) if then is None else {}),
            )
            for step, then in zip(steps[1:], (*steps[2:], None), strict=True)
        ),
    ]


def carry_out(kind: ChangeKind, last: dict[str, Any] | None = None, **fields: str) -> None:
    """Add the tasks of a change to a runbook: its steps one after the other, and the abort."""
    tasks = step_tasks(kind, last, **fields)
    chain(*tasks)
    finish(tasks, {"kind": kind, **fields})


def finish(
    tasks: Sequence[BaseOperator], change: dict[str, str], aborts: Sequence[BaseOperator] | None = None
) -> None:
    """Add the task `end`, and the task `abort`, which runs if a task of `aborts` (default: any
    task) failed.
    """
    abort = AbortOperator(
        task_id="abort", change=change, trigger_rule=TriggerRule.ONE_FAILED, on_failure_callback=ABORT_FAILED
    )
    list(tasks if aborts is None else aborts) >> abort
    _end(tasks)


def finish_in_any_case(tasks: Sequence[BaseOperator], change: dict[str, str], last: BaseOperator) -> None:
    """Add the task `end`, then the abort and `last` as teardowns.

    Airflow runs teardowns also after a person ended the run, and after a success. So both tasks
    check by themselves whether they have work.
    """
    abort = AbortOperator(task_id="abort", change=change, on_failure_callback=ABORT_FAILED)
    chain(_end(tasks), abort.as_teardown(), last.as_teardown(on_failure_fail_dagrun=True))


def finish_with(task: BaseOperator, last: BaseOperator) -> None:
    """Add the task `end`, and `last` as a teardown: it runs also after a person ended the run."""
    chain(_end([task]), last.as_teardown(on_failure_fail_dagrun=True))


def _end(tasks: Sequence[BaseOperator]) -> EmptyOperator:
    """Add the task `end`, which makes a run with a failed task a failed run.

    Without it, the run would count as a success when its abort succeeds. Airflow ends an empty task
    without starting it.
    """
    end = EmptyOperator(task_id=END, trigger_rule=TriggerRule.NONE_FAILED, on_failure_callback=None)
    tasks[-1] >> end
    return end
