"""Follows a change that somebody else began: the controller, the scaler, or a person at a shell."""

import time
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from sluice_airflow.errors import StepFailedError, translated_errors
from sluice_airflow.operators.base import TRIGGERER_SECONDS, WATCH_SECONDS, SluiceOperator
from sluice_airflow.triggers.changes import ChangeTrigger
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord


class FollowChangeOperator(SluiceOperator):
    """Copies the journal of a change to the task's log; fails if the change is aborted.

    It only watches: the change goes on without it.
    """

    template_fields: Sequence[str] = ("change",)
    ui_color = "#d7e8f5"

    def __init__(self, *, change: str, **kwargs: Any) -> None:
        """Follow the change with this id, as `sluice changes` lists it."""
        super().__init__(**kwargs)
        self.change = change

    def execute(self, context: Context) -> None:  # noqa: ARG002
        """Defer to the triggerer until the change has ended."""
        with translated_errors(), self.hook.open() as channel:
            known = channel.read(paths.change(self.change), ChangeRecord)
        if known is None:
            message = f"there is no change {self.change}; `sluice changes` lists the changes with their ids"
            raise StepFailedError(message)
        self.log.info("%s began change %s", known.value.by, self.change)
        self.defer(
            trigger=ChangeTrigger(self.change, time.time() + WATCH_SECONDS, self.sluice_conn_id),
            method_name="resume",
            timeout=WATCH_SECONDS + TRIGGERER_SECONDS,
        )

    def resume(self, context: Context, event: dict[str, Any] | None) -> dict[str, Any]:  # noqa: ARG002
        """End the task as the change has ended."""
        if event is None:
            message = f"change {self.change} had no end within a week; `sluice abort` ends it"
            raise StepFailedError(message)
        if not event["ok"]:
            raise StepFailedError(event["sentence"])
        self.log.info("Done: %s", event["sentence"])
        return event
