"""Dhalion's policy for dynamic resource provisioning in Heron.

Source: A. Floratou et al., "Dhalion: Self-Regulating Stream Processing in Heron", VLDB 2017. The
limit of growth to five times the size is from Heron's ScaleUpResolver. The paper leaves open by
which factor a tier shrinks, and how long an action without benefit stays on the blacklist.
"""

from collections.abc import Mapping
from math import ceil

from sluice_ops.model.ids import TierName
from sluice_ops.planning.scaler.signals import Observation
from tests.simulation.scaling.pipeline import Measurement

INTERVAL = 300.0
MOST_GROWTH = 4.0
SHRINK = 0.8
BLACKLISTED = 3600.0
"""Seconds for which a tier is not made smaller than a size at which a shrinking did harm."""


class Dhalion:
    name = "Dhalion"

    def __init__(self) -> None:
        self._next = 0.0
        self._pressure: dict[TierName, list[float]] = {}
        self._shrunk: dict[TierName, int] = {}
        """The sizes before the last shrinkings, whose effect is not known yet."""
        self._blacklist: dict[tuple[TierName, int], float] = {}
        """Tiers and sizes that are not made smaller, and until when."""

    def decide(self, measurement: Measurement) -> Mapping[TierName, int]:
        observation = measurement.observation
        for name, each in measurement.details.items():
            self._pressure.setdefault(name, []).append(each.pressure)
        if observation.now < self._next or observation.changing:
            return {}
        self._next = observation.now + INTERVAL
        pressure = {name: sum(values) / len(values) for name, values in self._pressure.items()}
        self._pressure = {}
        shrunk, self._shrunk = self._shrunk, {}
        # The tier nearest the end of the pipeline initiates the backpressure.
        bottleneck = next((name for name in reversed(pressure) if pressure[name] > 0), None)
        if bottleneck is None:
            return self._smaller(observation)
        if bottleneck in shrunk:
            self._blacklist[bottleneck, shrunk[bottleneck]] = observation.now + BLACKLISTED
            return {bottleneck: shrunk[bottleneck]}
        share = min(pressure[bottleneck], 0.999)
        growth = min(share / (1 - share), MOST_GROWTH)
        bounds = observation.bounds[bottleneck]
        size = observation.signals[bottleneck].workers
        return {bottleneck: min(ceil(size * (1 + growth)), bounds.maximum)}

    def _smaller(self, observation: Observation) -> dict[TierName, int]:
        """Shrink each tier in which almost nothing waits."""
        sizes = {}
        for name, signals in observation.signals.items():
            size = signals.workers
            wanted = max(int(size * SHRINK), observation.bounds[name].minimum)
            blacklisted = self._blacklist.get((name, size), 0.0) > observation.now
            if signals.lag_seconds < 1 and wanted < size and not blacklisted:
                sizes[name] = wanted
                self._shrunk[name] = size
        return sizes
