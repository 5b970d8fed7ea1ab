"""Threshold scaling as the Kubernetes Horizontal Pod Autoscaler documents it, on the busy share.

Source: kubernetes.io, "Horizontal Pod Autoscaling", algorithm details and default behaviour.
"""

from collections.abc import Mapping
from math import ceil

from sluice_ops.model.ids import TierName
from tests.simulation.scaling.pipeline import Measurement

TARGET = 0.7
TOLERANCE = 0.1
DOWN_WINDOW = 300.0
"""Seconds of which the highest recommendation counts for shrinking."""
UP_FACTOR, UP_PODS = 2, 4
"""Growth within 15 s: the higher of twice the size and four more."""


class Threshold:
    name = "Kubernetes HPA"

    def __init__(self) -> None:
        self._recommended: dict[TierName, list[tuple[float, int]]] = {}

    def decide(self, measurement: Measurement) -> Mapping[TierName, int]:
        observation = measurement.observation
        sizes = {}
        for name, signals in observation.signals.items():
            bounds, size = observation.bounds[name], signals.workers
            ratio = signals.busy / TARGET
            wanted = size if abs(ratio - 1) <= TOLERANCE else ceil(size * ratio)
            wanted = min(max(wanted, bounds.minimum), bounds.maximum)
            recent = [
                each for each in self._recommended.get(name, []) if each[0] > observation.now - DOWN_WINDOW
            ]
            self._recommended[name] = [*recent, (observation.now, wanted)]
            if wanted > size:
                sizes[name] = min(wanted, max(size * UP_FACTOR, size + UP_PODS))
            else:
                sizes[name] = min(size, max(each for _, each in self._recommended[name]))
        return sizes
