"""The DAG `scaler`: shows the scaler's changes as runs, and runs the runbooks of EC2 for it."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from sluice_airflow.dags.parts import (
    RETRIES,
    RETRY_SECONDS,
    SHOWN_FAILED,
    WAIT_FAILED,
    WISH_FAILED,
    tags,
)
from sluice_airflow.forms import Pipeline
from sluice_airflow.operators.scaler import FOLLOW, RUN, TriggerWishedRunOperator, WaitForWishOperator

DOC = """Show the scaler's changes as runs, and run the runbooks of EC2 that the scaler wants.

| task | what happens |
|---|---|
| wait | waits for a wish or a change of the scaler; `sluice scaler` shows its decisions |
| run | triggers `burst_to_ec2` or `leave_ec2` with the reason as a note, and waits for its end |
| follow | triggers `follow_change` for a change that the scaler began, with the reason as a note |

The scaler does not need this DAG for its changes: the controller makes them. One run waits at any
time, also while ZooKeeper is away. If `wait` fails for 15 to 30 minutes, it alerts, and the next
run tries again. A runbook that failed is not run again for ten minutes. Pause this DAG, or run
`sluice scaler advise TIER`, to keep the scaler from EC2. It uses EC2 only for tiers with `burst:
true` under `scaler` in the site file.
"""
WAIT_RETRIES = 5
"""Retries of `wait` before it alerts.

The delays double from 30 s on, and Airflow lengthens each at random up to twice: 15 to 30 min.
"""
BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
"""Without a date in the past, Airflow gives the second run the logical date of the first, and does
not make it.
"""


def make(pipeline: Pipeline) -> None:
    conn = pipeline.sluice_conn_id
    with DAG(
        pipeline.dag_id("scaler"),
        description=DOC.splitlines()[0],
        doc_md=DOC,
        schedule="@continuous",
        start_date=BEGINS,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=tags(("scaler", "ec2"), conn),
        default_args={
            "owner": "sluice",
            "execution_timeout": timedelta(minutes=5),
            "on_failure_callback": WISH_FAILED.of(conn),
        },
    ):
        wait = WaitForWishOperator(
            task_id="wait",
            retries=WAIT_RETRIES,
            retry_delay=timedelta(seconds=30),
            retry_exponential_backoff=2,
            on_failure_callback=WAIT_FAILED.of(conn),
            sluice_conn_id=conn,
        )
        run = TriggerWishedRunOperator(
            task_id=RUN,
            after=wait.task_id,
            wait_for_completion=True,
            deferrable=True,
            fail_when_dag_is_paused=True,
        )
        follow = TriggerWishedRunOperator(
            task_id=FOLLOW,
            after=wait.task_id,
            skip_when_already_exists=True,
            retries=RETRIES,
            retry_delay=timedelta(seconds=RETRY_SECONDS),
            on_failure_callback=SHOWN_FAILED.of(conn),
        )
        wait >> [run, follow]
