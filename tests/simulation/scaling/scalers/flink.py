"""The autoscaler of Flink's Kubernetes operator, for the whole pipeline as one job.

Source: the operator's documentation, "Autoscaler" and its table of options. The order of the rules
is that of the operator's classes `JobVertexScaler` and `ScalingMetricEvaluator`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from sluice_ops.model.ids import TierName
from sluice_ops.planning.scaler.signals import Bounds, Observation, Signals
from tests.simulation.scaling.pipeline import Measurement

EVALUATED_EVERY = 60.0


@dataclass(frozen=True)
class Options:
    """Seconds, and parts; the defaults are the operator's."""

    stabilization_interval: float = 300.0
    metrics_window: float = 900.0
    utilization_target: float = 0.7
    utilization_min: float = 0.4
    utilization_max: float = 1.0
    restart_time: float = 300.0
    catch_up_duration: float = 1800.0
    backlog_lag_threshold: float = 300.0
    scale_down_interval: float = 3600.0
    scale_down_max_factor: float = 0.6


EXAMPLE = Options(
    stabilization_interval=60.0,
    metrics_window=300.0,
    utilization_target=0.6,
    utilization_min=0.4,
    utilization_max=0.8,
    restart_time=120.0,
    catch_up_duration=300.0,
)
"""The example of the documentation, with its boundary of 0.2."""


@dataclass(frozen=True)
class _Sample:
    at: float
    signals: Mapping[TierName, Signals]
    busiest: Mapping[TierName, float]


@dataclass(frozen=True)
class _Means:
    """Of one tier over the window."""

    rate_done: float
    rate_out: float
    busiest: float


@dataclass(frozen=True)
class _Target:
    rate: float
    catch_up: float

    def capacity(self, options: Options, utilization: float, *, restart: bool) -> float:
        """Return the records/s that a tier must be able to process."""
        if utilization == 0:
            return float("inf")
        again = self.rate * options.restart_time / options.catch_up_duration if restart else 0.0
        return self.catch_up + again + self.rate / utilization


class Flink:
    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self._options = options
        self._samples: deque[_Sample] = deque()
        self._changed = 0.0
        self._next = 0.0
        self._smaller: dict[TierName, list[tuple[float, int]]] = {}
        """When a shrinking was recommended, and the size."""

    def decide(self, measurement: Measurement) -> Mapping[TierName, int]:
        observation = measurement.observation
        options, now = self._options, observation.now
        if observation.changing:
            self._changed = now
            self._samples.clear()
            return {}
        if now < self._changed + options.stabilization_interval:
            return {}
        busiest = {name: each.busiest for name, each in measurement.details.items()}
        self._samples.append(_Sample(now, observation.signals, busiest))
        while self._samples[0].at < now - options.metrics_window:
            self._samples.popleft()
        collected = now >= self._changed + options.stabilization_interval + options.metrics_window
        if not collected or now < self._next:
            return {}
        self._next = now + EVALUATED_EVERY
        means = {name: self._means(name) for name in observation.inputs}
        sizes, outside = self._sizes(observation, means, self._targets(observation, means))
        if not outside:
            return {}
        self._smaller.clear()
        return sizes

    def _means(self, name: TierName) -> _Means:
        count = len(self._samples)
        signals = [sample.signals[name] for sample in self._samples]
        return _Means(
            rate_done=sum(each.rate_done for each in signals) / count,
            rate_out=sum(each.rate_out for each in signals) / count,
            busiest=sum(sample.busiest[name] for sample in self._samples) / count,
        )

    def _targets(self, observation: Observation, means: Mapping[TierName, _Means]) -> dict[TierName, _Target]:
        targets: dict[TierName, _Target] = {}
        first, last = self._samples[0], self._samples[-1]
        for name, inputs in observation.inputs.items():
            catch_up = last.signals[name].lag / self._options.catch_up_duration
            if inputs:
                parts = [(targets[source], _ratio(means[source])) for source in inputs]
                rate = sum(target.rate * ratio for target, ratio in parts)
                catch_up += sum(target.catch_up * ratio for target, ratio in parts)
            else:
                growth = last.signals[name].lag - first.signals[name].lag
                rate = max(0.0, means[name].rate_done + growth / max(1.0, last.at - first.at))
            targets[name] = _Target(rate, catch_up)
        return targets

    def _sizes(
        self, observation: Observation, means: Mapping[TierName, _Means], targets: Mapping[TierName, _Target]
    ) -> tuple[dict[TierName, int], bool]:
        """Return the sizes of tiers that change, and whether one of these is out of its range."""
        options = self._options
        latest = self._samples[-1].signals
        backlog = any(
            latest[name].lag > options.backlog_lag_threshold * means[name].rate_done
            for name, inputs in observation.inputs.items()
            if not inputs
        )
        highest, lowest = (1.0, 0.0) if backlog else (options.utilization_max, options.utilization_min)
        sizes, outside = {}, False
        for name, target in targets.items():
            if not means[name].rate_done or not means[name].busiest:
                continue
            capacity = means[name].rate_done / means[name].busiest
            size = latest[name].workers
            factor = target.capacity(options, options.utilization_target, restart=True) / capacity
            factor = max(factor, 1 - options.scale_down_max_factor)
            wanted = _aligned(size, ceil(factor * size), observation.bounds[name])
            if wanted < size:
                wanted = self._delayed(name, observation.now, wanted, size)
            else:
                self._smaller.pop(name, None)
            if wanted == size:
                continue
            sizes[name] = wanted
            outside |= capacity < target.capacity(
                options, highest, restart=False
            ) or capacity > target.capacity(options, lowest, restart=True)
        return sizes, outside

    def _delayed(self, name: TierName, now: float, wanted: int, size: int) -> int:
        """Return the highest size recommended in the interval; before its end, the present size."""
        recommended = self._smaller.setdefault(name, [])
        recommended.append((now, wanted))
        begin = now - self._options.scale_down_interval
        if recommended[0][0] > begin:
            return size
        return max(each for at, each in recommended if at >= begin)


def _ratio(means: _Means) -> float:
    """Return the records that a tier writes for each record that it reads."""
    return means.rate_out / means.rate_done if means.rate_done else 0.0


def _aligned(size: int, wanted: int, bounds: Bounds) -> int:
    """Return the next size up by which the partitions can be divided (EVENLY_SPREAD)."""
    wanted = min(max(wanted, bounds.minimum), bounds.maximum)
    if wanted == size:
        return size
    highest = bounds.maximum if wanted > size else size
    fitting = (each for each in range(wanted, highest + 1) if bounds.partitions % each == 0)
    return next(fitting, wanted)
