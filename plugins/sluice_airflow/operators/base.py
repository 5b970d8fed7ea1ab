"""The base of Sluice's operators: the connection, the links, and how a task posts an operation and
waits for its result.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from sluice_airflow.hooks.sluice import SluiceHook
from sluice_airflow.links import LINKS
from sluice_airflow.notifiers.alerts import SluiceNotifier
from sluice_airflow.run_seconds import seconds_of_run
from sluice_airflow.triggers.operations import OperationTrigger
from sluice_ops.channel import Channel
from sluice_ops.model.approval import MOST_SECONDS
from sluice_ops.model.change import BEFORE_BEGIN, ChangeSpec, Operation, Result, Step
from sluice_ops.operations import requests
from sluice_ops.operations.expiry import ending

LOOK_SECONDS = 2.0
"""How long a task waits in a worker.

Most steps end sooner, and resuming a task costs 2 s of processor time.
"""
WATCH_SECONDS = 7 * 24 * 3600.0
"""A trigger without another end is replaced after a week, so that no task is deferred for ever."""
TRIGGERER_SECONDS = 120.0
"""Airflow fails the task if the triggerer is away for longer than this after the trigger's
own end.
"""


def asked_by(context: Context) -> str:
    """Return the run's name as the author of a change."""
    return f"airflow:{context['dag'].dag_id}/{context['run_id']}"


def person_behind(context: Context) -> str:
    """Return the Airflow user who triggered the run; empty if nobody did."""
    return context["dag_run"].triggering_user_name or ""


def began(context: Context) -> datetime:
    """Return the run's start. The form's durations count from it, in every task and every try."""
    started: datetime | None = context["dag_run"].start_date
    return datetime.now(UTC) if started is None else started


def change_spec(fields: Mapping[str, Any], context: Context) -> ChangeSpec:
    """Return the change that these fields describe; raise an error if they are not a valid one.

    Empty fields are left out. `until` is a time or a duration from the run's start; `workers` may
    be one text.
    """
    values = {key: value for key, value in fields.items() if value not in ("", None)}
    if "until" in values:
        values["until"] = ending(str(values["until"]), began(context), UTC).timestamp()
    if isinstance(values.get("workers"), str):
        values["workers"] = values["workers"].replace(",", " ").split()
    return ChangeSpec.model_validate(values)


def no_result(step: Step, heard: str = "") -> str:
    """Return the message for a step without a result in time, with what was `heard` last."""
    missing = f"step {step} has no result {requests.GRACE_SECONDS:.0f} s after its deadline"
    causes = "; ".join(filter(None, (missing, heard)))
    return f"{causes}. Check with `sluice status` that a controller runs"


class SluiceOperator(BaseOperator):
    """A task that works on one pipeline."""

    operator_extra_links: Collection[BaseOperatorLink] = LINKS

    def __init__(self, *, sluice_conn_id: str | None = None, **kwargs: Any) -> None:
        """Work on the pipeline of this connection; None: of the environment of Airflow's
        processes.
        """
        super().__init__(**kwargs)
        self.sluice_conn_id = sluice_conn_id
        self.on_failure_callback = self._of_pipeline(self.on_failure_callback)
        self.on_retry_callback = self._of_pipeline(self.on_retry_callback)

    def _of_pipeline(self, callbacks: Sequence[Any]) -> list[Any]:
        return [
            callback.of(self.sluice_conn_id) if isinstance(callback, SluiceNotifier) else callback
            for callback in callbacks
        ]

    @property
    def hook(self) -> SluiceHook:
        """The pipeline."""
        return SluiceHook(self.sluice_conn_id)

    def post(self, channel: Channel, operation: Operation) -> Result | None:
        """Post the operation, unless an earlier try did; return its result if it comes soon."""
        if requests.post(channel, operation):
            self.log.info(
                "Posted step %s of change %s, with a deadline of %.0f s",
                operation.step,
                operation.change,
                operation.deadline_seconds,
            )
        else:
            self.log.info("An earlier try posted operation %s; waiting for its result", operation.id)
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

    def log_seconds(self, channel: Channel, operation: str, began: float) -> None:
        """Log where the seconds of a run went, if this was the last step of its change or its
        abort.
        """
        if (sentence := seconds_of_run(channel, operation, began, time.time())) is not None:
            self.log.info("%s", sentence)

    def wait_in_triggerer(
        self,
        operation: Operation,
        *,
        finish: bool,
        alone: bool = False,
        asks: bool = False,
        began: float | None = None,
        **more: Any,
    ) -> NoReturn:
        """Free the worker until the posted operation has ended; then `resume` is called, with
        `more`.

        `finish`, `alone`, `asks` and `began` are those of `OperationTrigger`.
        """
        self.log.info("The step takes longer; the lines of its journal follow in this log")
        until = requests.end_of(operation)
        approval = MOST_SECONDS if operation.step in BEFORE_BEGIN and not operation.dry_run else 0.0
        self.defer(
            trigger=OperationTrigger(
                operation.id,
                until,
                finish=finish,
                alone=alone,
                asks=asks,
                began=began,
                sluice_conn_id=self.sluice_conn_id,
            ),
            method_name="resume",
            kwargs=more,
            timeout=until - time.time() + TRIGGERER_SECONDS + approval,
        )
