"""The DAG `follow_change`: shows a change that did not begin in Airflow."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from sluice_airflow.dags.parts import FOLLOWED_FAILED, RETRIES, RETRY_SECONDS, tags
from sluice_airflow.forms import FOLLOW_CHANGE, Pipeline
from sluice_airflow.operators.follow import FollowChangeOperator

DOC = """Follow a change that did not begin in Airflow: of the scaler, the controller, or a shell.

| task | what happens |
|---|---|
| follow | copies the change's journal to its log, and ends as the change ends |

The DAG `scaler` triggers a run for each change of the scaler. For another change, `sluice changes`
lists the ids. The run only watches: ending it does not end the change; `sluice abort` does.
"""


def make(pipeline: Pipeline) -> None:
    conn = pipeline.sluice_conn_id
    with DAG(
        pipeline.dag_id(FOLLOW_CHANGE),
        description=DOC.splitlines()[0],
        doc_md=DOC,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=tags(("scaler",), conn),
        params={
            "change": Param(
                type="string",
                title="Change",
                pattern=r"^[A-Za-z0-9_.:+-]+$",
                examples=["scale-enrich-to-3-1"],
                description="The id of the change, as `sluice changes` lists it.",
            )
        },
        default_args={
            "owner": "sluice",
            "retries": RETRIES,
            "retry_delay": timedelta(seconds=RETRY_SECONDS),
            "execution_timeout": timedelta(minutes=5),
            "on_failure_callback": FOLLOWED_FAILED,
            "sluice_conn_id": conn,
        },
    ):
        FollowChangeOperator(task_id="follow", change="{{ params.change }}")
