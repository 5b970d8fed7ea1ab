"""The tasks of the DAG `scaler`: wait for a wish or a change of the scaler, and trigger its run."""

import time
from collections.abc import Sequence
from typing import Any, NoReturn

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context, DagRunState, TaskInstanceState
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from sluice_airflow.forms import FOLLOW_CHANGE, dag_id
from sluice_airflow.operators.base import TRIGGERER_SECONDS, WATCH_SECONDS, SluiceOperator, began
from sluice_airflow.triggers.operations import WishTrigger
from sluice_ops.model.scaler import RUN_PREFIX

PAUSE_SECONDS = 600.0
"""How long a runbook that failed is not run again."""
RUN, FOLLOW = "run", "follow"
"""The tasks after the wait: one runs a runbook, the other one shows a change."""
WISH = "wish"
"""The XCom with the run to trigger."""


class WaitForWishOperator(SluiceOperator):
    """Waits until the scaler wants a burst or the end of one, or has begun a change."""

    ui_color = "#f2e6cf"

    def execute(self, context: Context) -> None:
        """Defer to the triggerer; after a failed runbook, the next one waits for ten minutes."""
        now = time.time()
        pause_until = max(now, _end_of_failed_runbook(context) + PAUSE_SECONDS)
        if pause_until > now:
            self.log.info("The last runbook failed; the next one runs in %.0f s", pause_until - now)
        self.defer(
            trigger=WishTrigger(pause_until, now + WATCH_SECONDS, self.sluice_conn_id),
            method_name="resume",
            timeout=WATCH_SECONDS + TRIGGERER_SECONDS,
        )

    def resume(self, context: Context, event: dict[str, Any] | None) -> NoReturn:
        """Hand the run to trigger to the task `run` or `follow`, and skip the other one."""
        if event is None:
            message = "skipped: the scaler wanted no runbook, and began no change, for a week"
            raise AirflowSkipException(message)
        self.log.info("%s", event["reason"])
        run = event.get("run") or f"{RUN_PREFIX}{began(context):%Y%m%dT%H%M%S}"
        wish = {**event, "runbook": dag_id(event["runbook"], self.sluice_conn_id), "run": run}
        context["ti"].xcom_push(WISH, wish)
        raise DownstreamTasksSkipped(tasks=[RUN if event["runbook"] == FOLLOW_CHANGE else FOLLOW])


def _end_of_failed_runbook(context: Context) -> float:
    """Return when the last failed run ended, if its runbook failed; else 0.

    A run that could not show a change says nothing about runbooks.
    """
    ti = context["ti"]
    failed = ti.get_previous_dagrun(state=DagRunState.FAILED)
    if failed is None or failed.end_date is None:
        return 0.0
    states = ti.get_task_states(dag_id=failed.dag_id, task_ids=[RUN], run_ids=[failed.run_id])
    runbook_failed = states.get(failed.run_id, {}).get(RUN) == TaskInstanceState.FAILED
    return float(failed.end_date.timestamp()) if runbook_failed else 0.0


class TriggerWishedRunOperator(TriggerDagRunOperator):
    """Triggers the run that the task before has found, with the reason as its note."""

    template_fields: Sequence[str] = (*TriggerDagRunOperator.template_fields, "note")
    ui_color = "#f2e6cf"

    def __init__(self, *, after: str, **kwargs: Any) -> None:
        """Trigger the run that the task `after` has found."""
        wish = f"ti.xcom_pull(task_ids='{after}', key='{WISH}')"
        super().__init__(
            trigger_dag_id=f"{{{{ {wish}.runbook }}}}",
            trigger_run_id=f"{{{{ {wish}.run }}}}",
            conf=f"{{{{ {wish}.form | tojson }}}}",  # type: ignore[arg-type]  # a template of JSON
            note=f"{{{{ {wish}.reason }}}}",
            **kwargs,
        )
