"""How a runbook becomes a DAG: the steps of its kind of change, in order, then an abort that runs when any of them has failed.

`of_kind` makes the whole DAG of a kind. A runbook with tasks of its own, such as a burst's, puts `step_tasks` among them.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, Param, TriggerRule, chain

from sluice_airflow import forms
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.operators.steps import END, AbortOperator, BeginShiftOperator, StepOperator
from sluice_ops.model.change import ChangeKind, Step
from sluice_ops.planning.changes.kind import Kind
from sluice_ops.planning.changes.kinds import KINDS

RETRIES = 12
"""For temporary errors only (ZooKeeper away): two to five minutes together; what is permanent fails at once."""
RETRY_SECONDS = 5
ACTIVE_SECONDS = 300
"""How long a task may be at work itself; waiting is the triggerer's, up to the run's deadline."""

STEP_FAILED = SluiceNotifier(
    did="The change is being aborted, by the task `abort` of the same run: every tier goes on with the incarnation that runs.",
    do="Read why in the task's log. When the cause is gone, trigger the runbook again: a run's steps are carried out once.",
)
ABORT_FAILED = SluiceNotifier(
    did="Tiers go on as they are. Either no controller has answered, and the change keeps the maintenance lock; or it is undone, and a "
    "tier that should run then did not for two minutes: this task's log says which, and which tier.",
    do="See that a controller runs (`sluice status`). Where the change is still at work there, `sluice abort` ends it; "
    "else look at the tier: `sluice describe` and `sluice logs` of it.",
)
REPORT_FAILED = SluiceNotifier(
    did="Nothing else: the pipeline is not concerned, because batch jobs only run on slots that no tier has.",
    do="Read why in the task's log; when no slot is lent, run night_shift first. Then trigger nightly_report again: it writes anew.",
)
HOUR_LATE = SluiceNotifier(
    did="Records flow on. The next run tells of the hour, with its own, when it is complete.",
    do="`sluice tiers` shows which tier is behind and by how much, `sluice audit` up to when each is complete.",
)
TERMINATE_FAILED = SluiceNotifier(
    did="Tiers are not concerned. No instance that a tier runs on is ever terminated: such a one is kept.",
    do="Where the reason says `kept`: run leave_ec2, which hands over first, and terminate nothing by hand. Else instances may be left and "
    "cost money: look at them in EC2, and clear this task, or terminate them there.",
)
LAUNCH_FAILED = SluiceNotifier(
    did="Nothing was posted, so the tier is as it was.",
    do="Look whether ZooKeeper answers (`sluice doctor`), then clear this task.",
)
TIER_FAILED = SluiceNotifier(
    did="A tier that failed is started again by the controller, waiting longer each time, and by this DAG when the controller gives up. "
    "A tier that lost records goes on. For one that is too far behind, the pipeline's entry is held back, and records wait in Kafka.",
    do="A driver's error: it is in this task's log and in `sluice logs`; correct the transform, its data or its "
    "resources; new code is published, and run after `sluice upgrade`. "
    "Lost records: `sluice audit` names them, and they are still in their stream: `sluice replay` of the tier takes them in again; then "
    "settle the loss. "
    "Too far behind: mend what it writes to, or give it more slots; `sluice pause` of it alone lets the other tiers go on.",
)


_TASKS = {
    Step.PREFLIGHT: "checks what is asked, makes the plan, takes the maintenance lock",
    Step.CORDON: "nothing new is placed on the host",
    Step.PREPARE: "the next incarnations are started and warmed beside those that run, one tier after the other",
    Step.CUT: "each tier is handed over, nearest the pipeline's end first, one at a time",
    Step.VERIFY: "the receipts balance: where the old incarnations stopped is where the new ones went on",
    Step.TRIAL: "the new code is compared with the old for a while",
    Step.RELEASE: "the slots of the old incarnations are taken away",
    Step.REBOOT: "the host's agent runs the reboot command, and is waited for",
    Step.HEALTH: "the host's agent answers, and its capacity is there",
    Step.RETURN: "the host may be given work again",
    Step.PAUSE: "each tier stops after a commit, and keeps its slots",
    Step.RESUME: "each tier goes on from where it stopped",
    Step.WRITE_OFF: "what was on the host is started elsewhere",
    Step.ABORT: "only when a step failed: back to the incarnations that run",
}
"""What the task of each step does, for the page of a runbook."""


def task_id(step: Step) -> str:
    """Name the task of a step."""
    return "cut_over" if step is Step.CUT else step.value


def runbook(name: str, *, doc: str | None, params: dict[str, Param] | None = None, **settings: Any) -> DAG:
    """Make the DAG of a runbook: its form, one run at a time, never catching up."""
    return DAG(
        name,
        description=(doc or "").strip().splitlines()[0],
        doc_md=doc,
        params={**(params or {}), **forms.everywhere()},
        schedule=settings.pop("schedule", None),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["sluice", *settings.pop("tags", ("runbook",))],
        default_args={
            "owner": "sluice",
            "retries": RETRIES,
            "retry_delay": timedelta(seconds=RETRY_SECONDS),
            "execution_timeout": timedelta(seconds=ACTIVE_SECONDS),
            "on_failure_callback": STEP_FAILED,
        },
        **settings,
    )


def of_kind(kind: Kind) -> DAG:
    """Make the runbook of a kind of change: its form, its page and its steps."""
    with runbook(kind.runbook, doc=page(kind), params=forms.fields(kind)) as dag:
        carry_out(kind.name, None, **forms.templates(kind))
    return dag


def page(kind: Kind) -> str:
    """Describe a runbook: what it does, and what each of its tasks does."""
    rows = "\n".join(f"| {task_id(step)} | {_TASKS[step]} |" for step in (*kind.steps, Step.ABORT))
    dry = "A dry run shows the plan (log and XCom of `preflight`) and changes nothing."
    return f"{kind.summary}\n\n{kind.details}\n\n| task | what happens |\n|---|---|\n{rows}\n\n{dry}\n"


def step_tasks(kind: ChangeKind, last: dict[str, Any] | None = None, **fields: str) -> list[StepOperator]:
    """Make a task for each step of `kind`; `fields` are templates of the change's fields, `last` are settings of the last task."""
    change = {"kind": kind, **fields}
    steps = KINDS[kind].steps
    begins = BeginShiftOperator if "shift" in fields else StepOperator
    return [
        (begins if step is steps[0] else StepOperator)(
            task_id=task_id(step), step=step, change=change, **((last or {}) if step is steps[-1] else {})
        )
        for step in steps
    ]


def carry_out(kind: ChangeKind, last: dict[str, Any] | None = None, **fields: str) -> None:
    """Fill a runbook with the steps of its change, one after the other, and its abort."""
    tasks = step_tasks(kind, last, **fields)
    chain(*tasks)
    finish(tasks, {"kind": kind, **fields})


def finish(
    tasks: Sequence[BaseOperator], change: dict[str, str], aborts: Sequence[BaseOperator] | None = None
) -> None:
    """Add the end, and the abort of `aborts` (all tasks, if not said)."""
    abort = AbortOperator(
        task_id="abort", change=change, trigger_rule=TriggerRule.ONE_FAILED, on_failure_callback=ABORT_FAILED
    )
    list(tasks if aborts is None else aborts) >> abort
    _end(tasks)


def finish_in_any_case(tasks: Sequence[BaseOperator], change: dict[str, str], last: BaseOperator) -> None:
    """Add the end, then an abort and `last` as teardowns: Airflow runs these also when a person has ended the whole run.

    It runs them after a success, too: they have to see for themselves that there is nothing to do.
    """
    abort = AbortOperator(task_id="abort", change=change, on_failure_callback=ABORT_FAILED)
    chain(_end(tasks), abort.as_teardown(), last.as_teardown(on_failure_fail_dagrun=True))


def _end(tasks: Sequence[BaseOperator]) -> EmptyOperator:
    """Add the end that makes a run with a failed task a failed run: without it, the run would succeed when its abort does.

    It costs nothing: Airflow ends an empty task without starting it.
    """
    end = EmptyOperator(task_id=END, trigger_rule=TriggerRule.NONE_FAILED, on_failure_callback=None)
    tasks[-1] >> end
    return end
