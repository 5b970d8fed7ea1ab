"""Decides how many slots each tier needs for its load."""

from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Decision, Memory, ScalerSettings
from sluice_ops.planning.scaler.signals import Observation


def plan(
    observation: Observation, settings: ScalerSettings, memory: Memory
) -> tuple[dict[TierName, Decision], Memory]:
    """Return the decision about each tier, and the memory for the next plan."""
    raise NotImplementedError
