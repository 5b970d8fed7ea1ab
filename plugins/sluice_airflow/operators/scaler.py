"""The tasks of the DAG `scaler`: wait for a wish of the scaler, and run the runbook for it."""

import time
from collections.abc import Sequence
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context, DagRunState
from airflow.sdk.exceptions import AirflowSkipException

from sluice_airflow.forms import dag_id
from sluice_airflow.operators.base import TRIGGERER_SECONDS, WATCH_SECONDS, SluiceOperator
from sluice_airflow.triggers.operations import WishTrigger
from sluice_ops.model.scaler import RUN_PREFIX

PAUSE_SECONDS = 600.0
"""How long a runbook that failed is not run again."""


class WaitForWishOperator(SluiceOperator):
    """Waits until the scaler wants a burst, or the end of one."""

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> None:
        """Defer to the triggerer; after a failed run, ten minutes pass first."""
        now, previous = time.time(), context["ti"].get_previous_dagrun()
        pause_until = now
        if previous is not None and previous.state == DagRunState.FAILED and previous.end_date is not None:
            pause_until = max(now, previous.end_date.timestamp() + PAUSE_SECONDS)
            self.log.info("The last runbook failed; the next one runs in %.0f s", pause_until - now)
        self.defer(
            trigger=WishTrigger(pause_until, now + WATCH_SECONDS, self.sluice_conn_id),
            method_name="resume",
            timeout=WATCH_SECONDS + TRIGGERER_SECONDS,
        )

    def resume(self, context: Context, event: dict[str, Any] | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the runbook, its form and its reason."""
        if event is None:
            message = "skipped: the scaler wanted no runbook for a week"
            raise AirflowSkipException(message)
        self.log.info("%s", event["reason"])
        return {**event, "runbook": dag_id(event["runbook"], self.sluice_conn_id)}


class RunWishedRunbookOperator(TriggerDagRunOperator):
    """Triggers the runbook with the reason as its note, and waits for its end."""

    template_fields: Sequence[str] = (*TriggerDagRunOperator.template_fields, "note")
    ui_color = "#f2e6cf"

    def __init__(self, *, after: str, **kwargs: Any) -> None:
        """Run the runbook that the task `after` returned."""
        wish = f"ti.xcom_pull(task_ids='{after}')"
        super().__init__(
            trigger_dag_id=f"{{{{ {wish}.runbook }}}}",
            trigger_run_id=f"{RUN_PREFIX}{{{{ dag_run.start_date | ts_nodash }}}}",
            conf=f"{{{{ {wish}.form | tojson }}}}",  # type: ignore[arg-type]  # a template of JSON
            note=f"{{{{ {wish}.reason }}}}",
            wait_for_completion=True,
            deferrable=True,
            fail_when_dag_is_paused=True,
            **kwargs,
        )
