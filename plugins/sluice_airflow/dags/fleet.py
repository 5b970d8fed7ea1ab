"""The DAGs of several changes: use a new host, reboot hosts in batches, upgrade every tier, drain
to empty.
"""

from airflow.sdk import Param, chain

from sluice_airflow import forms
from sluice_airflow.dags.parts import (
    DRAIN_FAILED,
    PIPELINE_FAILED,
    ROLL_FAILED,
    SPREAD_FAILED,
    finish,
    finish_with,
    page,
    runbook,
    step_tasks,
)
from sluice_airflow.operators.fleet import (
    DrainToEmptyOperator,
    RollingRebootOperator,
    SpreadOperator,
    TakeDrainBackOperator,
    UpgradePipelineOperator,
)
from sluice_ops.model.change import UPGRADE
from sluice_ops.planning.changes.kinds import KINDS

NEW_HOSTS = KINDS["canary"]
ROLLING_REBOOT = """Reboot the hosts of a rack, zone or label in batches while records flow.

| task | what happens |
|---|---|
| roll | plans all batches, then drains, reboots, checks and returns one batch after the other |

No batch begins outside `reboot_window` of the site file, while an alert is open, or without room
for its tiers. A run that stopped is continued by the next run with the same hosts. A dry run shows
the plan of each batch.
"""


UPGRADE_PIPELINE = """Upgrade every tier to a release, one after the other, while records flow.

| task | what happens |
|---|---|
| upgrade | upgrades the canary, then each tier in an order in which all stay compatible |

Each tier has its trial. If one fails, it goes back by itself, and the tiers that were upgraded go
back in reverse order. A run that was interrupted is continued by the next run with the same release.
A dry run shows the order and the plan of the first tier.
"""


DRAIN_TO_EMPTY = """Pause the whole pipeline with nothing in flight, and return a receipt.

| task | what happens |
|---|---|
| drain | pauses the tiers that read from outside, then each tier once it has processed everything |
| take_back | only if the run was ended before the receipt: resumes what it has paused |

If a tier does not get empty before the deadline, the run names the tier and what holds it, and resumes
all tiers that it has paused. The XCom of `drain` has the receipt. `resume_pipeline` lets records flow
again. A dry run shows the order, and who has to approve.
"""


def make_new_hosts(pipeline: forms.Pipeline) -> None:
    fields = forms.templates(NEW_HOSTS)
    with runbook(
        NEW_HOSTS.runbook,
        doc=page(NEW_HOSTS, spread="moves workers from busier hosts to the new one, if that helps"),
        params=forms.fields(NEW_HOSTS, pipeline),
        sluice_conn_id=pipeline.sluice_conn_id,
    ):
        steps = step_tasks(NEW_HOSTS.name, None, **fields)
        spread = SpreadOperator(task_id="spread", on_failure_callback=SPREAD_FAILED)
        chain(*steps, spread)
        finish([*steps, spread], {"kind": NEW_HOSTS.name, **fields}, aborts=steps)


def make(pipeline: forms.Pipeline) -> None:
    make_new_hosts(pipeline)
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
    with runbook(
        "upgrade_pipeline",
        doc=UPGRADE_PIPELINE,
        params={
            "release": forms.fields(KINDS[UPGRADE], pipeline)["release"],
            "canary": Param(
                None,
                type=["null", "string"],
                enum=[*pipeline.tiers, None],
                title="Canary",
                description="The tier that is upgraded first. Empty: the first in the order.",
            ),
            "deadline": forms.deadline(
                "Seconds that the upgrade of each tier may take. After that it is aborted and undone."
            ),
        },
        sluice_conn_id=pipeline.sluice_conn_id,
        tags=("runbook", "fleet"),
    ):
        UpgradePipelineOperator(
            task_id="upgrade",
            release="{{ '' if params.release is none else params.release }}",
            canary="{{ '' if params.canary is none else params.canary }}",
            on_failure_callback=PIPELINE_FAILED,
        )
    with runbook(
        "drain_to_empty",
        doc=DRAIN_TO_EMPTY,
        params={
            "deadline": forms.deadline(
                "Seconds in which every tier has to be empty. After that, all paused tiers are resumed."
            )
        },
        sluice_conn_id=pipeline.sluice_conn_id,
        tags=("runbook", "fleet"),
    ):
        finish_with(
            DrainToEmptyOperator(task_id="drain", on_failure_callback=DRAIN_FAILED),
            TakeDrainBackOperator(task_id="take_back", on_failure_callback=DRAIN_FAILED),
        )
