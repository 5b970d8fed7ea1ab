"""Spread what a tier holds in Spark over more partitions, or fewer, while records flow.

The next incarnation makes a checkpoint of its own from the newest one, spreads that anew, and takes over when as many keys are in it as
before; where that fails, the tier goes on as it was, and the run is red.
"""

from sluice_airflow import forms
from sluice_airflow.runbooks import carry_out, runbook
from sluice_ops.model.change import ChangeKind

with runbook(
    "repartition_tier", doc=__doc__, params={"tier": forms.tier(), "partitions": forms.partitions()}
) as dag:
    carry_out(ChangeKind.REPARTITION, tier="{{ params.tier }}", partitions="{{ params.partitions }}")
