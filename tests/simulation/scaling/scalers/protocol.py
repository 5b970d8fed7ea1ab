"""What each scaler does."""

from collections.abc import Mapping
from typing import Protocol

from sluice_ops.model.ids import TierName
from tests.simulation.scaling.pipeline import Measurement


class Scaler(Protocol):
    name: str

    def decide(self, measurement: Measurement) -> Mapping[TierName, int]:
        """Return the sizes that tiers shall have; other tiers stay as they are."""
        ...
