"""The simulated pipeline: workers with a true rate, backlog by partition, changes that take time.

A worker processes only the partitions that it has, so the slowest worker's partitions lag. Growth
is a handover: the next incarnation holds its slots while the old one works. Shrinking is done in
place.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sluice_ops.model.backpressure import Watermarks
from sluice_ops.model.ids import TierName
from sluice_ops.planning.scaler.signals import Bounds, Observation, Signals
from tests.simulation.scaling.traces import GAIN, TIERS, Fault, SimulatedTier, Trace, Values

CHANGE_SECONDS = 30.0
"""From a request to the first record on the new workers. Measured for handovers: 26 to 34 s."""
CHANGE_SPREAD = 4.0
GAP_SECONDS = 0.3
"""A tier processes nothing for so long at the end of a change."""
CLUSTER_SLOTS = 150
UTILISATION = 0.7
BUSY_NOISE = 0.02
WATERMARKS = Watermarks()


class Pace(NamedTuple):
    """How fast the workers of a tier are now."""

    speed: float
    """Records/s of each worker."""
    first: float
    """Worker 0 has this part of the speed."""


@dataclass(frozen=True)
class Details:
    """What other systems measure beyond `Signals`, averaged over the same seconds."""

    busiest: float
    """Share of time that the busiest worker spends on processing."""
    pressure: float
    """Share of time for which the tier would keep the pipeline's source suspended if no stream
    could hold its backlog.
    """


@dataclass(frozen=True)
class Measurement:
    """What a scaler decides on."""

    observation: Observation
    details: Mapping[TierName, Details]


@dataclass
class _Sums:
    """Since the last measurement."""

    seconds: float = 0.0
    arrived: float = 0.0
    done: float = 0.0
    busy: float = 0.0
    busiest: float = 0.0
    pressure: float = 0.0
    throttled: bool = False


@dataclass
class TierRun:
    """One tier of a running pipeline."""

    tier: SimulatedTier
    workers: int
    wanted: int | None = None
    """The size after the change that is under way; None: no change is."""
    change_ends: float = 0.0
    gap: float = 0.0
    """Seconds of a gap that are still to come."""
    backlog: Values | None = None
    """Waiting records by partition; None: none waits."""
    lag: float = 0.0
    """Waiting records."""
    lag_seconds: float = 0.0
    """How long the oldest of them waits."""
    lagging: bool = False
    """The lag rose above the high watermark, and has not fallen below the low one since."""
    done: float = 0.0
    """Records of the last step."""
    sums: _Sums = field(default_factory=_Sums)
    _arrived: float = 0.0
    _arrivals: deque[tuple[float, float]] = field(default_factory=deque)
    """Time, and all records that had arrived until then; from before the oldest waiting record."""

    @property
    def slots(self) -> int:
        return self.workers + (self.wanted if self.wanted is not None and self.wanted > self.workers else 0)

    @property
    def partitions_of_first(self) -> int:
        """The partitions of worker 0, which has as many as any other."""
        return -(-self.tier.partitions // self.workers)

    def change(self, wanted: int, ends: float) -> None:
        self.wanted, self.change_ends = wanted, ends

    def finish_change(self) -> None:
        assert self.wanted is not None
        self.workers, self.wanted, self.gap = self.wanted, None, GAP_SECONDS

    def sustainable(self, pace: Pace) -> float:
        """Return the records/s at which no partition's lag grows."""
        return self.tier.partitions * pace.speed * pace.first / self.partitions_of_first

    def step(self, now: float, seconds: float, arrived: float, pace: Pace, intake: float = np.inf) -> None:
        """Let records arrive, and process until `now` what the workers can, at most `intake`."""
        gap = min(self.gap, seconds)
        self.gap -= gap
        useful = seconds - gap
        heaviest = arrived / self.tier.partitions * self.partitions_of_first
        self._arrived += arrived
        if self.backlog is None and heaviest <= pace.speed * pace.first * useful and arrived <= intake:
            self.done = arrived
            busy = (arrived + heaviest * (1 / pace.first - 1)) / pace.speed
            busiest = heaviest / (pace.speed * pace.first)
        else:
            self._add_backlog(now, seconds, arrived)
            busy, busiest = self._work(now, useful, pace, intake)
        total = self.sums
        total.seconds += seconds
        total.arrived += arrived
        total.done += self.done
        total.busy += busy / self.workers
        total.busiest += busiest
        if self.lag_seconds > 1 and arrived > self.done and intake == np.inf:
            total.pressure += seconds * (1 - self.done / arrived)

    def _add_backlog(self, now: float, seconds: float, arrived: float) -> None:
        if self.backlog is None:
            self.backlog = np.zeros(self.tier.partitions)
            self._arrivals.append((now - seconds, self._arrived - arrived))
        self._arrivals.append((now, self._arrived))
        self.backlog += arrived / self.tier.partitions

    def _work(self, now: float, useful: float, pace: Pace, intake: float) -> tuple[float, float]:
        """Process backlog; return the seconds for which all workers, and the busiest, were busy."""
        assert self.backlog is not None
        owners = np.arange(self.tier.partitions) % self.workers
        waiting = np.bincount(owners, weights=self.backlog, minlength=self.workers)
        speeds = np.full(self.workers, pace.speed)
        speeds[0] *= pace.first
        taken = np.minimum(waiting, speeds * useful)
        taken *= min(1.0, intake / max(1e-9, float(taken.sum())))
        left = 1 - np.divide(taken, waiting, out=np.zeros_like(taken), where=waiting > 0)
        self.backlog *= left[owners]
        self.done = float(taken.sum())
        self.lag = float(self.backlog.sum())
        self.lag_seconds = self._age(now, self._arrived - float(self.backlog.max()) * self.tier.partitions)
        if self.lag < 1:
            self.backlog, self.lag, self.lag_seconds = None, 0.0, 0.0
            self._arrivals.clear()
        busy = taken / speeds
        return float(busy.sum()), float(busy.max())

    def _age(self, now: float, taken: float) -> float:
        """Return the seconds since the record after the first `taken` ones arrived."""
        arrivals = self._arrivals
        while len(arrivals) > 2 and arrivals[1][1] <= taken:
            arrivals.popleft()
        (t0, count0), (t1, count1) = arrivals[0], arrivals[1]
        part = (taken - count0) / (count1 - count0) if count1 > count0 else 1.0
        return now - (t0 + (t1 - t0) * min(1.0, max(0.0, part)))

    def watch(self) -> None:
        """Compare the lag with the watermarks."""
        mark = WATERMARKS.low if self.lagging else WATERMARKS.high
        self.lagging = self.lag > mark.records or self.lag_seconds > mark.seconds


def needed(records: float, rate: float) -> int:
    """Return the fewest workers with this rate that take the records at the target utilisation."""
    return max(1, int(np.ceil(records / (rate * UTILISATION) - 1e-9)))


class Pipeline:
    """All tiers under one trace.

    While a tier lags, the entry takes nine tenths of what the slowest tier can take.
    """

    def __init__(self, trace: Trace, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.trace = trace
        self.at = 0.0
        self.slot_seconds = 0.0
        self._random = random
        self._starts = np.arange(0, trace.seconds, trace.step)
        self._index = 0
        load = trace.load(self._starts + trace.step / 2)
        self.load = np.maximum(0, load * (1 + _noise(random, len(load), trace))).tolist()
        self._rates = {tier.name: trace.rates(tier, self._starts).tolist() for tier in TIERS}
        self.tiers = {
            tier.name: TierRun(tier, needed(load[0] * GAIN[tier.name], self._rates[tier.name][0]))
            for tier in TIERS
        }
        self._bases = {name: run.workers for name, run in self.tiers.items()}

    @property
    def ended(self) -> bool:
        return self._index >= len(self._starts)

    def _pace(self, run: TierRun) -> Pace:
        rate = self._rates[run.tier.name][self._index]
        fault = self._fault(run)
        if fault is None:
            return Pace(rate, 1.0)
        if fault.processors is not None:
            rate *= min(1.0, fault.processors / run.workers)
        return Pace(rate, fault.slow_worker or 1.0)

    def _fault(self, run: TierRun) -> Fault | None:
        fault = self.trace.fault
        return fault if fault and fault.tier == run.tier.name and fault.active(self.at) else None

    def step(self) -> None:
        """Advance by one step."""
        seconds = self.trace.step
        for run in self.tiers.values():
            if run.wanted is not None and self.at >= run.change_ends:
                run.finish_change()
        paces = {name: self._pace(run) for name, run in self.tiers.items()}
        intakes = {
            name: 0.9 * run.sustainable(paces[name]) / GAIN[name]
            for name, run in self.tiers.items()
            if run.tier.inputs and run.lagging
        }
        culprit = min(intakes, key=intakes.__getitem__, default=None)
        intake = intakes[culprit] if culprit else np.inf
        self.at += seconds
        written = {}
        for name, run in self.tiers.items():
            tier = run.tier
            arrived = (
                sum(written[source] for source in tier.inputs)
                if tier.inputs
                else self.load[self._index] * seconds
            )
            if culprit and not tier.inputs:
                offered = min(run.lag + arrived, run.sustainable(paces[name]) * seconds)
                run.sums.throttled = True
                self.tiers[culprit].sums.pressure += max(0.0, seconds - intake * seconds**2 / offered)
            run.step(self.at, seconds, arrived, paces[name], np.inf if tier.inputs else intake * seconds)
            run.watch()
            written[name] = run.done * tier.selectivity
            self.slot_seconds += run.slots * seconds
        self._index += 1

    def measure(self) -> Measurement:
        """Return what was measured since the last time."""
        signals, details = {}, {}
        used = sum(run.slots for run in self.tiers.values())
        for name, run in self.tiers.items():
            sums, run.sums = run.sums, _Sums()
            noise = 1 + BUSY_NOISE * self._random.standard_normal()
            fault = self._fault(run)
            signals[name] = Signals(
                rate_in=sums.arrived / sums.seconds,
                rate_done=sums.done / sums.seconds,
                rate_out=sums.done * run.tier.selectivity / sums.seconds,
                busy=min(1.0, sums.busy / sums.seconds * noise),
                workers=run.workers,
                lag=int(run.lag),
                lag_seconds=run.lag_seconds,
                starved=fault is not None and fault.processors is not None and run.workers > fault.processors,
                throttled=sums.throttled,
            )
            details[name] = Details(
                busiest=min(1.0, sums.busiest / sums.seconds * noise), pressure=sums.pressure / sums.seconds
            )
        bounds = {
            name: Bounds(
                minimum=1,
                base=self._bases[name],
                maximum=40,
                partitions=run.tier.partitions,
                room=CLUSTER_SLOTS - used,
                held_by=None,
            )
            for name, run in self.tiers.items()
        }
        observation = Observation(
            now=self.trace.begins + self.at,
            signals=signals,
            bounds=bounds,
            inputs={tier.name: tier.inputs for tier in TIERS},
            change_seconds=CHANGE_SECONDS,
            changing=frozenset(name for name, run in self.tiers.items() if run.wanted is not None),
        )
        return Measurement(observation, details)

    def scale(self, sizes: Mapping[TierName, int]) -> list[tuple[TierName, int, int]]:
        """Begin the changes that lead to these sizes; return tier, size before and size after.

        A tier whose change is under way stays as it is, and so does a tier without room.
        """
        begun = []
        for name, wanted in sizes.items():
            run = self.tiers[name]
            room = CLUSTER_SLOTS - sum(other.slots for other in self.tiers.values())
            if run.wanted is None and wanted != run.workers and (wanted < run.workers or wanted <= room):
                takes = CHANGE_SECONDS + self._random.uniform(-CHANGE_SPREAD, CHANGE_SPREAD)
                run.change(wanted, self.at + takes)
                begun.append((name, run.workers, wanted))
        return begun


def _noise(random: np.random.Generator, count: int, trace: Trace) -> Values:
    """Return deviations of the load that last for some minutes, as parts of it."""
    kept = np.exp(-trace.step / 120)
    shocks = random.standard_normal(count) * trace.noise * np.sqrt(1 - kept**2)
    deviations = np.zeros(count)
    for index in range(1, count):
        deviations[index] = kept * deviations[index - 1] + shocks[index]
    return deviations
