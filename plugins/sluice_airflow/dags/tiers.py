"""A DAG `tier_<name>` for each tier: `launch` requests that the tier runs, and `supervise` watches
it.

`sluice up` starts a run of each. Trigger the DAG again to start a stopped tier. Controller and
agents keep the tier running, also while Airflow is away.
"""

from datetime import timedelta

from airflow.sdk import DAG

from sluice_airflow.assets import inputs, outputs
from sluice_airflow.dags.parts import LAUNCH_FAILED, TIER_FAILED, tags
from sluice_airflow.forms import Pipeline
from sluice_airflow.operators.tiers import LaunchTierOperator, SuperviseTierOperator

DOC = """Launch and supervise tier `{tier}`.

`supervise` fails and alerts in three cases: an incarnation of the tier fails, the audit misses
records of the tier, or the tier lags too far. The driver's last error is in the log. Airflow then
retries `supervise`; the retry also starts the tier again if the controller has given it up. A
driver that was killed and replaced is only a line in the log. The tier runs on if this run is
failed, cleared or deleted: `sluice stop {tier}` stops it. The run ends when the tier is stopped.
"""


def make(pipeline: Pipeline) -> None:
    conn = pipeline.sluice_conn_id
    flows = {str(tier.name): (inputs(tier, conn), outputs(tier, conn)) for tier in pipeline.published}
    for tier in pipeline.tiers:
        inlets, outlets = flows.get(tier, ([], []))
        with DAG(
            pipeline.dag_id(f"tier_{tier}"),
            description=f"Launches and supervises tier {tier}",
            doc_md=DOC.format(tier=tier),
            schedule=None,
            catchup=False,
            max_active_runs=1,
            is_paused_upon_creation=False,
            tags=tags(("tier",), conn),
            default_args={
                "owner": "sluice",
                "execution_timeout": timedelta(minutes=5),
                "sluice_conn_id": conn,
            },
        ):
            launch = LaunchTierOperator(
                task_id="launch",
                tier=tier,
                inlets=inlets,
                outlets=outlets,
                retries=100,
                retry_delay=timedelta(seconds=5),
                on_failure_callback=LAUNCH_FAILED,
            )
            supervise = SuperviseTierOperator(
                task_id="supervise",
                tier=tier,
                retries=100_000,
                retry_delay=timedelta(seconds=5),
                retry_exponential_backoff=1.5,
                max_retry_delay=timedelta(minutes=2),
                on_retry_callback=TIER_FAILED,
                on_failure_callback=TIER_FAILED,
            )
            launch >> supervise
