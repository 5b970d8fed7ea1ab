"""A DAG for each tier of the pipeline, `tier_<name>`: launch says that it is wanted, supervise watches it for as long as it is.

`make up` has a run of each going; trigger it again to start a tier that was stopped. The tier is kept running by the controller and the
agents, also while Airflow is away.
"""

from datetime import timedelta

from airflow.sdk import DAG

from sluice_airflow import forms
from sluice_airflow.operators.tiers import LaunchTierOperator, SuperviseTierOperator
from sluice_airflow.runbooks import LAUNCH_FAILED, TIER_FAILED

DOC = """Tier `{tier}`: launched when this DAG runs, and supervised from then on.

When one of its incarnations fails, `supervise` fails with the driver's last error in its log, alerts, and is retried; a tier that the
controller has given up is started again by that. It fails and alerts likewise when the audit misses records of the tier, and when the tier
is too far behind. A driver that was killed and replaced is a note in the log. Failing, clearing or deleting this run leaves the tier
running: `sluice` stops tiers. A run ends when its tier is not wanted any more.
"""

for tier in forms.tiers():
    with DAG(
        f"tier_{tier}",
        description=f"Launches and supervises tier {tier}",
        doc_md=DOC.format(tier=tier),
        schedule=None,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        tags=["sluice", "tier"],
        default_args={"owner": "sluice", "execution_timeout": timedelta(minutes=5)},
    ) as dag:
        launch = LaunchTierOperator(
            task_id="launch",
            tier=tier,
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
    globals()[dag.dag_id] = dag
