"""The DAG `scaler`: runs the runbooks of EC2 that the scaler wants."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from sluice_airflow.dags.parts import WAIT_FAILED, WISH_FAILED, tags
from sluice_airflow.forms import Pipeline
from sluice_airflow.operators.scaler import RunWishedRunbookOperator, WaitForWishOperator

DOC = """Run the runbook that the scaler wants: a burst to EC2, or the end of all bursts.

| task | what happens |
|---|---|
| wait | waits until the scaler wants a runbook; `sluice scaler` shows its decisions |
| run | triggers `burst_to_ec2` or `leave_ec2` with the reason as a note, and waits for its end |

One run waits at any time, also while ZooKeeper is away. If `wait` fails for 15 to 30 minutes, it
alerts, and the next run tries again. A runbook that failed is not run again for ten minutes. Pause
this DAG, or run `sluice scaler advise TIER`, to keep the scaler from EC2. There is no such DAG
without `burst: true` under `scaler` in the site file.
"""
RETRIES = 5
"""Retries of `wait` before it alerts.

The delays double from 30 s on, and Airflow lengthens each at random up to twice: 15 to 30 min.
"""
BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
"""Without a date in the past, Airflow gives the second run the logical date of the first, and does
not make it.
"""


def make(pipeline: Pipeline) -> None:
    if not pipeline.site.scaler.bursts:
        return
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
            retries=RETRIES,
            retry_delay=timedelta(seconds=30),
            retry_exponential_backoff=2,
            on_failure_callback=WAIT_FAILED.of(conn),
            sluice_conn_id=conn,
        )
        run = RunWishedRunbookOperator(task_id="run", after=wait.task_id)
        wait >> run
