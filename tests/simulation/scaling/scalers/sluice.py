"""Sluice's planner, with its default settings."""

from collections.abc import Mapping

from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Decision, Memory, Mode, ScalerSettings, TierScaling
from sluice_ops.planning.scaler.planner import plan
from tests.simulation.scaling.pipeline import Measurement


class Sluice:
    name = "Sluice"

    def __init__(self) -> None:
        self.decisions: list[tuple[float, TierName, Decision]] = []
        """The wall clock, the tier and the decision, each time that a tier's number changed."""
        self._settings = ScalerSettings(defaults=TierScaling(mode=Mode.ACT))
        self._memory = Memory()
        self._wanted: dict[TierName, int] = {}

    def decide(self, measurement: Measurement) -> Mapping[TierName, int]:
        observation = measurement.observation
        decisions, self._memory = plan(observation, self._settings, self._memory)
        for name, decision in decisions.items():
            if decision.wanted != self._wanted.get(name, decision.slots):
                self.decisions.append((observation.now, name, decision))
        self._wanted = {name: decision.wanted for name, decision in decisions.items()}
        return self._wanted
