"""The DAG `replay_tier`: process old or quarantined records of a tier again."""

from datetime import timedelta

from sluice_airflow import forms
from sluice_airflow.dags.parts import REPLAY_FAILED, runbook
from sluice_airflow.operators.replay import ReplayOperator

DOC = f"""{forms.REPLAY}

| task | what happens |
|---|---|
| replay | runs `sluice replay` with the tier's current code, and shows its progress |

Records that have gone through the tier are recognised and dropped. The replay slows down, or waits,
while live records would take twice as long. A dry run says how many records would be read.
"""
SECONDS = 24 * 3600.0
RETRIES = 60
"""One each minute: a replay may take a day, and services may be away for some minutes."""


def make(pipeline: forms.Pipeline) -> None:
    with runbook(
        forms.REPLAY_TIER,
        doc=DOC,
        params={
            **forms.replay_fields(pipeline),
            "deadline": forms.deadline(
                "Seconds that the run may take. After that the replay stops; what it has written stays.",
                SECONDS,
            ),
        },
        sluice_conn_id=pipeline.sluice_conn_id,
    ):
        ReplayOperator(
            task_id="replay",
            tier="{{ params.tier }}",
            records="{{ params.records }}",
            begin="{{ params.begin or '' }}",
            end="{{ params.end or '' }}",
            rate="{{ params.rate }}",
            retries=RETRIES,
            retry_delay=timedelta(minutes=1),
            on_failure_callback=REPLAY_FAILED,
        )
