"""The DAGs for several hosts: reboot them in batches."""

from airflow.sdk import Param

from sluice_airflow import forms
from sluice_airflow.dags.parts import ROLL_FAILED, runbook
from sluice_airflow.operators.fleet import RollingRebootOperator

ROLLING_REBOOT = """Reboot the hosts of a rack, zone or label in batches while records flow.

| task | what happens |
|---|---|
| roll | plans all batches, then drains, reboots, checks and returns one batch after the other |

No batch begins outside `reboot_window` of the site file, while an alert is open, or without room
for its tiers. A run that stopped is continued by the next run with the same hosts. A dry run shows
the plan of each batch.
"""


def make(pipeline: forms.Pipeline) -> None:
    with runbook(
        "rolling_reboot",
        doc=ROLLING_REBOOT,
        params={
            "place": Param(
                type="string",
                title="Place",
                pattern=forms.PLACES,
                examples=forms.places(pipeline),
                description="The hosts: rack:r1, zone:z, label:l, or names. Separate several by commas.",
            ),
            "at_once": Param(
                1, type="integer", minimum=1, title="At once", description="How many hosts reboot together."
            ),
            "only_needed": Param(
                False,
                type="boolean",
                title="Only needed",
                description="Only hosts with an update that needs a reboot.",
            ),
            "deadline": forms.deadline(
                "Seconds that each batch may take. After that the batch is aborted and undone."
            ),
        },
        sluice_conn_id=pipeline.sluice_conn_id,
        tags=("runbook", "fleet"),
    ):
        RollingRebootOperator(
            task_id="roll",
            place="{{ params.place }}",
            at_once="{{ params.at_once }}",
            only_needed="{{ params.only_needed }}",
            on_failure_callback=ROLL_FAILED,
        )
