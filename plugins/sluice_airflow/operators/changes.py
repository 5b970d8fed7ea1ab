"""An operator for each kind of change, for DAGs of your own.

One task carries out the whole change, as the runbook of the kind does: all steps one after the
other, and an abort after a failed step. The classes are made from the kinds of change, such as
`SluiceDrainHostOperator(host="h1")` for the runbook `drain_host`.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from airflow.sdk import Context

from sluice_airflow.errors import AwayError, StepFailedError, translated_errors
from sluice_airflow.operators.approval import is_answer, show_form, write_answer
from sluice_airflow.operators.base import (
    SluiceOperator,
    asked_by,
    change_spec,
    no_result,
    person_behind,
)
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.change import DEADLINE_SECONDS, ChangeSpec, Operation, Result, Step, change_of_step
from sluice_ops.model.ids import ChangeId
from sluice_ops.operations import requests
from sluice_ops.planning.changes.kind import Kind
from sluice_ops.planning.changes.kinds import KINDS


class SluiceChangeOperator(SluiceOperator):
    """Carries out a change. A subclass names its kind."""

    kind: ClassVar[Kind]
    template_fields: Sequence[str] = ("change",)
    ui_color = "#d7e8f5"

    def __init__(self, *, deadline: float = DEADLINE_SECONDS, **kwargs: Any) -> None:
        """Take the kind's fields by name, and `deadline`, the seconds that the change may take.

        TypeError if a required field is missing.
        """
        names = {field.name for field in self.kind.fields}
        change = {name: kwargs.pop(name) for name in names & set(kwargs)}
        missing = [field.name for field in self.kind.fields if field.required and field.name not in change]
        if missing:
            message = f"{type(self).__name__} needs {' and '.join(missing)}"
            raise TypeError(message)
        super().__init__(**kwargs)
        self.change = {"kind": self.kind.name, **change}
        self._posted: Operation | None = None
        self.deadline = deadline

    def execute(self, context: Context) -> dict[str, Any]:
        """Post the first step whose result is not there yet; wait for the results of all.

        A try that follows a failed one begins the change again.
        """
        with translated_errors():
            spec = change_spec(self.change, context)
            with self.hook.open() as channel:
                return self._go_on(channel, context, self._attempt(channel, context), spec)

    def resume(self, context: Context, event: dict[str, Any], form_of: str | None = None) -> dict[str, Any]:
        """Continue after the trigger has fired, or after a person has answered the form of the
        change `form_of`: with the next step, or with the abort's end.
        """
        with translated_errors():
            spec = change_spec(self.change, context)
            with self.hook.open() as channel:
                if is_answer(event):
                    self.hear(channel, event, form_of)
                    change = ChangeId(form_of) if form_of else self._attempt(channel, context)
                else:
                    change = change_of_step(event["operation"])
                    if "result" in event and event["result"] is None:
                        self.log.error("No result of %s in time; %s", event["operation"], event["heard"])
                return self._go_on(channel, context, change, spec)

    def hear(self, channel: Channel, event: dict[str, Any], form_of: str | None) -> None:
        """Write the answer of a person to the change whose form the task shows.

        Without such a change, the form is that of an earlier change of the task, which was answered
        elsewhere.
        """
        answered_elsewhere = "The answer does not count: its change was answered elsewhere, or has ended"
        outcome = answered_elsewhere if form_of is None else write_answer(channel, ChangeId(form_of), event)
        self.log.info("%s", outcome)

    def on_kill(self) -> None:
        """Abort the change: a person has ended the task."""
        if self._posted is not None:
            with suppress(ChannelAwayError, ConflictError), self.hook.open() as channel:
                requests.post(channel, requests.abort_of(self._posted, self._posted.by))

    def _go_on(
        self, channel: Channel, context: Context, change: ChangeId, spec: ChangeSpec
    ) -> dict[str, Any]:
        """Carry out the steps that have no result yet; after a failed step, abort and fail."""
        steps = KINDS[spec.kind].steps
        first = requests.operation_id(change, steps[0])
        posted = channel.read(paths.operation(first), Operation)
        begun_at = time.time() if posted is None else posted.value.posted_at
        until = begun_at + self.deadline + requests.waited_seconds(channel, change)
        for step in steps:
            operation = self._operation(context, change, step, spec, max(1.0, until - time.time()))
            answer = requests.read_result(channel, operation.id)
            result = self._carry_out(channel, context, operation) if answer is None else answer
            if not result.ok:
                # a refused preflight has nothing to undo; an unanswered one must not begin later
                if step is not Step.PREFLIGHT or requests.read_result(channel, operation.id) is None:
                    aborting = self._operation(context, change, Step.ABORT, spec, requests.ABORT_SECONDS)
                    self._carry_out(channel, context, aborting)
                    self.log_seconds(channel, aborting.id, begun_at)
                raise StepFailedError(f"{step} failed: {result.sentence}")  # noqa: TRY003, EM102
            self.log.info("%s: %s", step, result.sentence)
        self.log_seconds(channel, operation.id, begun_at)
        return {"sentence": result.sentence, **result.details}

    def _carry_out(self, channel: Channel, context: Context, operation: Operation) -> Result:
        """Return the step's result; defer to the triggerer if it does not come soon.

        If the change waits for approval, the task shows the form.
        """
        self._posted = operation
        result = self.post(channel, operation)
        if result is None:
            read = channel.read(paths.operation(operation.id), Operation)
            posted = operation if read is None else read.value  # an earlier try may have posted it
            if time.time() < requests.end_of(posted) or requests.waits_for_approval(channel, posted.id):
                form_of = posted.change if show_form(context, channel, posted.change) else None
                self.wait_in_triggerer(posted, finish=False, alone=True, asks=not form_of, form_of=form_of)
            result = Result(ok=False, sentence=no_result(operation.step), finished_at=time.time())
        return result

    def _attempt(self, channel: Channel, context: Context) -> ChangeId:
        """Return the id of the change that this try carries out.

        It is the first one that has not failed: a worker that was killed left it unfinished, and
        this try continues it.
        """
        task = context["ti"]
        parts = [task.dag_id, task.run_id, task.task_id]
        if task.map_index is not None and task.map_index >= 0:
            parts.append(str(task.map_index))
        number = 1
        while True:
            change = requests.change_id(".".join([*parts, str(number)]))
            if not self._failed(channel, change):
                return change
            number += 1

    def _failed(self, channel: Channel, change: ChangeId) -> bool:
        """Tell whether a step of the change failed or the change was aborted; wait for the abort's
        end.
        """
        abort = requests.operation_id(change, Step.ABORT)
        if channel.exists(paths.operation(abort)):
            try:
                requests.wait(channel, abort, requests.ABORT_SECONDS + requests.GRACE_SECONDS)
            except requests.NoAnswerError as error:
                raise AwayError(str(error)) from error
            return True
        results = (
            requests.read_result(channel, requests.operation_id(change, step)) for step in self.kind.steps
        )
        return any(result is not None and not result.ok for result in results)

    def _operation(
        self, context: Context, change: ChangeId, step: Step, spec: ChangeSpec, seconds: float
    ) -> Operation:
        return Operation(
            id=requests.operation_id(change, step),
            change=change,
            step=step,
            spec=spec,
            by=asked_by(context),
            person=person_behind(context),
            posted_at=time.time(),
            deadline_seconds=seconds,
        )


OPERATORS = {
    kind.operator: type(
        kind.operator,
        (SluiceChangeOperator,),
        {"kind": kind, "__module__": __name__, "__doc__": f"{kind.summary}\n\n{kind.details}".strip()},
    )
    for kind in KINDS.values()
    if kind.runbook
}
"""The operator of each kind of change that has a runbook, by its name."""
globals().update(OPERATORS)
