"""A pipeline for `test_standby_takeover`: a realtime tier and one in micro-batches, each with a
warm standby.
"""

from dataclasses import replace

from sluice.api.declarations import Pipeline
from sluice_ops.model.tier import Standby
from tests.integration.sluice.hanging_pipeline import PIPELINE as WITHOUT_STANDBY

PIPELINE = Pipeline(
    tuple(
        replace(tier, standby=Standby.WARM)
        for tier in WITHOUT_STANDBY.tiers
        if tier.name in {"enter", "store"}
    )
)
