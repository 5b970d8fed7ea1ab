"""One step of a runbook as a task: posts one operation, and waits for its result.

The first step and an abort start in a worker, which reads the form; all other steps start in the
triggerer. The controller carries the change out; these tasks only post and wait. The operation's id
follows from the run and the step. So a task that is retried, cleared or started twice finds the
operation that it posted before.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from airflow.sdk import Context, ParamsDict, TaskInstanceState  # type: ignore[attr-defined]  # not in the stub
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, DownstreamTasksSkipped
from airflow.triggers.base import StartTriggerArgs

from sluice_airflow import forms
from sluice_airflow.errors import (
    AbortFailedError,
    NoResultError,
    StepFailedError,
    UnusableFormError,
    translated_errors,
)
from sluice_airflow.operators.approval import is_answer, show_form, write_answer
from sluice_airflow.operators.base import (
    SluiceOperator,
    asked_by,
    began,
    change_spec,
    no_result,
    person_behind,
)
from sluice_airflow.triggers.operations import StepTrigger
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import Operation, Result, Step
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests

END = "end"
"""The id of the task after the last step; it succeeds if every step succeeded, or in a dry run."""
SCHEDULED = "scheduled"
"""The type of a run that Airflow's scheduler has started."""


def change_of(context: Context) -> ChangeId:
    """Return the id of the run's change."""
    return requests.change_id(f"{context['dag'].dag_id}.{context['run_id']}")


def seconds_left(context: Context, waited: float = 0.0) -> float:
    """Return the seconds until the run's deadline, which counts from the run's start, so equally
    for every try.

    The seconds that its change `waited` for approval do not count.
    """
    end = began(context).timestamp() + waited + float(context["params"]["deadline"])
    return max(1.0, end - time.time())


def states_of(context: Context, *tasks: str) -> list[str]:
    """Return the states of these tasks.

    `end` is skipped if a person ended the run: Airflow skips the rest.
    """
    run = context["run_id"]
    states = context["ti"].get_task_states(dag_id=context["dag"].dag_id, task_ids=list(tasks), run_ids=[run])
    return [str(states[run][task]) for task in tasks]


class StepOperator(SluiceOperator):
    """Carries out one step of the run's change."""

    template_fields: Sequence[str] = ("change",)
    ui_color = "#d7e8f5"
    error: type[StepFailedError] = StepFailedError
    """What a failed step raises."""
    unanswered: type[AirflowFailException] = StepFailedError
    """What a step without a result in time raises. The run's abort follows, so the controller tells
    the failure once it answers again.
    """

    def __init__(
        self, *, step: Step, change: dict[str, Any], following: Sequence[Step] = (), **kwargs: Any
    ) -> None:
        """Carry out `step` of a change; `change` holds the fields of a `ChangeSpec`, as templates
        of the form.

        After a success in a worker, the steps `following` are posted one by one, as long as each
        succeeds within a moment. Their tasks begin seconds later, and find them posted.
        """
        super().__init__(**kwargs)
        self.step = step
        self.change = change
        self.following = following

    def execute(self, context: Context) -> dict[str, Any]:
        """Post the step; wait for its result here for a moment, then in the triggerer."""
        with translated_errors():
            operation = self.operation(context)
            with self.hook.open() as channel:
                operation = _extended(operation, channel)
                result = self.post(channel, operation)
                if result is None:
                    self._wait(context, channel, operation)
                if result.ok and not operation.dry_run:
                    self._post_following(channel, operation)
                self.log_seconds(channel, operation.id, began(context).timestamp())
        return self.end(context, result)

    def _post_following(self, channel: Channel, operation: Operation) -> None:
        try:
            for step in self.following:
                result = self.post(channel, requests.next_step(channel, operation, step))
                if result is None or not result.ok:
                    return
        except Exception as error:  # noqa: BLE001 - this step has succeeded whatever comes
            self.log.info("The tasks of the following steps will post them: %s", error)

    def operation(self, context: Context) -> Operation:
        """Return the operation to post; raise an error if the form's values are not a valid
        change.
        """
        spec = change_spec(self.change, context)
        change = change_of(context)
        return Operation(
            id=requests.operation_id(change, self.step),
            change=change,
            step=self.step,
            spec=spec,
            by=asked_by(context),
            person=person_behind(context),
            posted_at=time.time(),
            deadline_seconds=self.seconds(context),
            dry_run=bool(context["params"]["dry_run"]),
        )

    def seconds(self, context: Context) -> float:
        """Return how many seconds the controller may take for this step."""
        return seconds_left(context)

    def resumes(self, context: Context) -> bool:
        """Tell whether a success has to resume this task in a worker, rather than end in the
        triggerer.
        """
        return bool(self.outlets) or bool(context["params"]["dry_run"])

    def _wait(self, context: Context, channel: Channel, operation: Operation) -> NoReturn:
        """Wait in the triggerer; if the change waits for approval, the task shows the form."""
        waits = show_form(context, channel, operation.change)
        began_at = began(context).timestamp()
        self.wait_in_triggerer(operation, finish=not self.resumes(context), asks=not waits, began=began_at)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Continue after the trigger has fired, or after a person has answered the form."""
        if is_answer(event) or event.get("waits"):
            return self._go_on(context, event)
        if event["result"] is None:
            raise self.unanswered(no_result(self.step, event["heard"]))
        return self.end(context, Result.model_validate(event["result"], extra="ignore"))

    def _go_on(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Write the answer of a person into the channel, and wait for the step again."""
        change = change_of(context)
        with translated_errors(), self.hook.open() as channel:
            if is_answer(event):
                self.log.info("%s", write_answer(channel, change, event))
            posted = channel.read(paths.operation(requests.operation_id(change, self.step)), Operation)
            if posted is None:
                raise self.unanswered(no_result(self.step, "the posted step is gone"))
            result = self.post(channel, posted.value)
            if result is None:
                self._wait(context, channel, posted.value)
            self.log_seconds(channel, posted.value.id, began(context).timestamp())
        return self.end(context, result)

    def end(self, context: Context, result: Result) -> dict[str, Any]:
        """End the task by the result: success, failure, or in a dry run the plan, with all later
        tasks skipped.
        """
        if not result.ok:
            message = f"{self.step} failed: {result.sentence}"
            raise self.error(message)
        self.log.info("Done: %s", result.sentence)
        summary = {"sentence": result.sentence, **result.details}
        if context["params"]["dry_run"]:
            self.log.info("Dry run: this is the plan, and nothing moves. %s", result.details or "")
            context["ti"].xcom_push("plan", summary)
            raise DownstreamTasksSkipped(tasks=sorted(self.downstream_task_ids - {"abort"}))
        return summary


def _extended(operation: Operation, channel: Channel) -> Operation:
    """Return the step with the time that its change waited for approval added to its deadline."""
    waited = 0.0 if operation.step is Step.ABORT else requests.waited_seconds(channel, operation.change)
    return operation.model_copy(update={"deadline_seconds": operation.deadline_seconds + waited})


class NextStepOperator(StepOperator):
    """Carries out a step after the first one, in the triggerer.

    A worker starts only after a failure, for a task with outlets, and in `dag.test()`.
    """

    start_from_trigger = True

    def __init__(self, *, first: Step, then: Step | None = None, **kwargs: Any) -> None:
        """Carry out a step of the change that the task of the step `first` began.

        A success posts the step `then` at once: its task begins only after scheduler and triggerer
        have looked again, seconds later. The trigger ends at the run's deadline, so the task needs
        no time limit of its own.
        """
        super().__init__(execution_timeout=None, **kwargs)
        # Airflow's triggerer would end with an error at a field of the form without a default,
        # before it reads the form's values; the DAG has all fields anyway
        self.params = ParamsDict()
        path, arguments = StepTrigger(
            self.step, first, then, finish=not self.outlets, sluice_conn_id=self.sluice_conn_id
        ).serialize()
        self.start_trigger_args = StartTriggerArgs(path, "resume", trigger_kwargs=arguments)


class BeginShiftOperator(StepOperator):
    """Begins a shift.

    A scheduled shift is skipped on the dates in `not_on`, if it is late and another shift has begun
    since, and before the first tier is published. The task's log and its rendered templates have
    the reason: Airflow lets no task set the note of its run.
    """

    template_fields: Sequence[str] = (*StepOperator.template_fields, "skipped_because")
    overwrite_rtif_after_execution = True
    """Show the fields as they are at the end of the task."""

    def __init__(self, *, step: Step, change: dict[str, Any], **kwargs: Any) -> None:
        """Take the arguments of a StepOperator."""
        super().__init__(step=step, change=change, **kwargs)
        self.skipped_because = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin the shift, or skip it; a person's trigger always begins it."""
        run = context["dag_run"]
        if run.run_type == SCHEDULED:
            reason = forms.reason_to_skip(
                self.hook.site(), self.change["shift"], run.run_after, datetime.now(UTC)
            )
            if reason is None and not self._has_tiers():
                reason = (
                    "skipped: no tier is published yet, so there is no share to change. Once tiers run, "
                    f"begin the shift by hand: sluice shift {self.change['shift']}"
                )
            if reason is not None:
                self.skipped_because = reason
                raise AirflowSkipException(reason)
        return super().execute(context)

    def _has_tiers(self) -> bool:
        with translated_errors(), self.hook.open() as channel:
            return bool(channel.children("/tiers"))


class AbortOperator(StepOperator):
    """Undoes an unfinished change after a task failed; as a teardown, also after a person ended the
    run.
    """

    ui_color = "#f5d7d7"
    error = AbortFailedError
    unanswered = NoResultError

    def __init__(self, *, change: dict[str, Any], **kwargs: Any) -> None:
        """Abort the change that `change` describes."""
        super().__init__(step=Step.ABORT, change=change, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Undo the change.

        If the form's values are not a change, no step was posted: nothing is left to undo.
        """
        if context["params"]["dry_run"]:
            message = "nothing to undo: a dry run changes nothing"
            raise AirflowSkipException(message)
        if self.is_teardown and states_of(context, END) == [TaskInstanceState.SUCCESS]:
            message = "nothing to undo: the run was completed"
            raise AirflowSkipException(message)
        try:
            return super().execute(context)
        except UnusableFormError as error:
            self.log.info("Nothing to undo, because no step was posted: %s", error)
            return {"sentence": "no step was posted"}

    def seconds(self, context: Context) -> float:  # noqa: ARG002
        """Return the abort's own time limit: the run's deadline may be over, which may be why it is
        aborted.
        """
        return requests.ABORT_SECONDS
