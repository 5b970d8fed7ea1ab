"""One step of a runbook as a task: post one operation, look whether it ends at once, else leave the waiting to the triggerer.

The tasks hold no logic of the change itself: that is the controller's. An operation's id follows from the run and the step alone, so
a task that is retried, cleared or started twice finds what it has posted before.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context, TaskInstanceState
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from sluice_airflow import forms
from sluice_airflow.errors import StepFailedError, UnusableFormError, kinds
from sluice_airflow.hooks.channel import ChannelHook
from sluice_airflow.triggers.operations import OperationTrigger
from sluice_ops.channel import Channel
from sluice_ops.model.change import ChangeSpec, Operation, Result, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests
from sluice_ops.operations.expiry import ending

LOOK_SECONDS = 2.0
"""How long a task waits by itself: most steps end sooner, and to resume a task costs about 2 s of processor."""
END = "end"
"""The task after the last step: a success when all went well, or in a dry run."""
SCHEDULED = "scheduled"
"""A run that Airflow has begun, at its hour or later."""
TRIGGERER_SECONDS = 120.0
"""The triggerer may be away for this long after the trigger's own end before Airflow gives the task up."""


def change_of(context: Context) -> ChangeId:
    """Name the change that a run carries out."""
    return requests.change_id(f"{context['dag'].dag_id}.{context['run_id']}")


def asked_by(context: Context) -> str:
    """Name the run, for the channel's records."""
    return f"airflow:{context['dag'].dag_id}/{context['run_id']}"


def seconds_left(context: Context) -> float:
    """Return what is left of the run's deadline, counted from the run's start, so that every try finds the same end."""
    return max(1.0, began(context).timestamp() + float(context["params"]["deadline"]) - time.time())


def began(context: Context) -> datetime:
    """Return when the run began: what its form says of times counts from there, in every task and every try."""
    started: datetime | None = context["dag_run"].start_date
    return datetime.now(UTC) if started is None else started


def states_of(context: Context, *tasks: str) -> list[str]:
    """Return how these tasks of the run are; `end` is skipped when a person has ended the run, for Airflow then skips what is left."""
    run = context["run_id"]
    found = context["ti"].get_task_states(dag_id=context["dag"].dag_id, task_ids=list(tasks), run_ids=[run])
    return [str(found[run][task]) for task in tasks]


class StepOperator(BaseOperator):
    """Carries out one step of the run's change."""

    template_fields: Sequence[str] = ("change",)
    ui_color = "#d7e8f5"

    def __init__(self, *, step: Step, change: dict[str, Any], **kwargs: Any) -> None:
        """Carry out `step` of the change that `change` describes: the fields of a `ChangeSpec`, as templates of the form."""
        super().__init__(**kwargs)
        self.step = step
        self.change = change

    def execute(self, context: Context) -> dict[str, Any]:
        """Post the step, and wait for its result here for a moment, then in the triggerer."""
        with kinds():
            operation = self.operation(context)
            with ChannelHook().open() as channel:
                result = self.post(channel, operation)
        if result is None:
            self.leave_waiting(context, operation)
        return self.end(context, result)

    def leave_waiting(self, context: Context, operation: Operation) -> NoReturn:
        """Free the worker until the operation has ended."""
        self.log.info("It takes a while; its journal goes on in this log as it is written")
        until = time.time() + operation.deadline_seconds + requests.GRACE_SECONDS
        self.defer(
            trigger=OperationTrigger(operation.id, until, finish=not self.resumes(context)),
            method_name="resume",
            timeout=until - time.time() + TRIGGERER_SECONDS,
        )

    def operation(self, context: Context) -> Operation:
        """Say what is to be posted; a form that is no change is refused here."""
        said = {key: value for key, value in self.change.items() if value not in ("", None)}
        if "until" in said:
            said["until"] = ending(said["until"], began(context), UTC).timestamp()
        if "workers" in said:
            said["workers"] = said["workers"].replace(",", " ").split()
        spec = ChangeSpec.model_validate(said)
        change = change_of(context)
        return Operation(
            id=requests.operation_id(change, self.step),
            change=change,
            step=self.step,
            spec=spec,
            by=asked_by(context),
            posted_at=time.time(),
            deadline_seconds=self.seconds(context),
            dry_run=bool(context["params"]["dry_run"]),
        )

    def seconds(self, context: Context) -> float:
        """Return how long the controller may take for this step."""
        return seconds_left(context)

    def resumes(self, context: Context) -> bool:
        """Tell whether a success has to come back to this task, rather than end it in the triggerer."""
        return bool(self.outlets) or bool(context["params"]["dry_run"])

    def post(self, channel: Channel, operation: Operation) -> Result | None:
        """Post the operation, unless an earlier try did, and return its result if there is one soon."""
        if requests.post(channel, operation):
            self.log.info(
                "Posted %s of change %s, to be done within %.0f s",
                self.step,
                operation.change,
                operation.deadline_seconds,
            )
        else:
            self.log.info("An earlier try posted %s; going on from there", operation.id)
        end = time.monotonic() + LOOK_SECONDS
        while True:
            result = requests.read_result(channel, operation.id)
            if result is not None or time.monotonic() >= end:
                break
            time.sleep(requests.POLL_SECONDS)
        if result is not None:
            for entry in requests.read_journal(channel, operation.id):
                self.log.info("%s", entry.sentence)
        return result

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the trigger has fired."""
        if event["result"] is None:
            message = (
                f"{self.step} has no result, {requests.GRACE_SECONDS:.0f} s after its deadline: {event['heard']}. "
                "Is a controller running? `sluice status` tells"
            )
            raise StepFailedError(message)
        return self.end(context, Result.model_validate(event["result"], extra="ignore"))

    def end(self, context: Context, result: Result) -> dict[str, Any]:
        """Turn the result into the task's end: a success, a failure, or, in a dry run, a plan and nothing after it."""
        if not result.ok:
            raise StepFailedError(f"{self.step} failed: {result.sentence}")  # noqa: TRY003, EM102
        self.log.info("Done: %s", result.sentence)
        told = {"sentence": result.sentence, **result.details}
        if context["params"]["dry_run"]:
            self.log.info("Dry run: this is the plan, nothing is moved. %s", result.details or "")
            context["ti"].xcom_push("plan", told)
            raise DownstreamTasksSkipped(tasks=sorted(self.downstream_task_ids - {"abort"}))
        return told


class BeginShiftOperator(StepOperator):
    """Begins a shift; one that is late, because nothing ran at its hour, is left out when another shift's hour has come since."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin it, unless it is only made up for and over."""
        run = context["dag_run"]
        if run.run_type == SCHEDULED:
            since = forms.shift_since(self.change["shift"], run.run_after, datetime.now(UTC))
            if since is not None:
                message = f"it was due {run.run_after:%Y-%m-%d %H:%M} UTC, and the shift {since} has begun since: nothing is changed"
                raise AirflowSkipException(message)
        return super().execute(context)


class AbortOperator(StepOperator):
    """Undoes what a run has not finished, when one of its tasks has failed; as a teardown, when a person has ended the run, too."""

    ui_color = "#f5d7d7"

    def __init__(self, *, change: dict[str, Any], **kwargs: Any) -> None:
        """Abort the change that `change` describes."""
        super().__init__(step=Step.ABORT, change=change, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Undo it; what the form says is posted by no step when it is no change, so then there is nothing to undo."""
        if context["params"]["dry_run"]:
            message = "a dry run has changed nothing, so there is nothing to undo"
            raise AirflowSkipException(message)
        if self.is_teardown and states_of(context, END) == [TaskInstanceState.SUCCESS]:
            message = "the run came to its end, so there is nothing to undo"
            raise AirflowSkipException(message)
        try:
            return super().execute(context)
        except UnusableFormError as error:
            self.log.info("Nothing was begun, so there is nothing to undo: %s", error)
            return {"sentence": "nothing was begun"}

    def seconds(self, context: Context) -> float:  # noqa: ARG002
        """Return a time of its own: the run's may be over, which may be why it is aborted."""
        return requests.ABORT_SECONDS
