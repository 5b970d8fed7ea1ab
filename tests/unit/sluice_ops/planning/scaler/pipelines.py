"""A pipeline of tiers with ideal workers, which follows the scaler's decisions at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from sluice_ops.model.scaler import Decision, Memory, Mode, ScalerSettings, TierScaling
from sluice_ops.planning.scaler.planner import plan
from sluice_ops.planning.scaler.signals import Bounds, Observation, Signals

LOOK = 5.0
"""The seconds between two plans."""
BOUNDS = Bounds(minimum=1, base=1, maximum=64, partitions=64, room=64, held_by=None)
ACT = ScalerSettings(defaults=TierScaling(mode=Mode.ACT))
START = 1_790_000_000.0


@dataclass
class Tier:
    """One tier. Each worker processes `per_worker` records a second; all of them at most `most`."""

    per_worker: float = 100.0
    inputs: tuple[str, ...] = ()
    writes: float = 1.0
    """Records that it writes for each that it processes."""
    fixed: float = 0.0
    """The part of the time that its batches take even without a record."""
    most: float = float("inf")
    workers: int = 1
    lag: float = 0.0
    bounds: Bounds = BOUNDS
    starved: bool = False
    not_ours: int = 0
    """The slots of a burst that the scaler did not ask for."""
    changing_until: float = -1.0
    asked: tuple[int, int] | None = None
    """Its workers at home and of a burst, from `changing_until` on."""


@dataclass
class Pipeline:
    """Tiers in order, fed at `rate(seconds)` records a second."""

    tiers: dict[str, Tier]
    rate: Callable[[float], float]
    settings: ScalerSettings = ACT
    change_seconds: float = 10.0
    boot_seconds: float = 0.0
    seconds: float = 0.0
    memory: Memory = field(default_factory=Memory)
    watermarks: tuple[float, float] | None = None
    """Low and high: tiers that are fed from outside wait while another tier's lag is too large."""
    held: bool = False

    def observe(self) -> Observation:
        """Process records for one look, and return what is seen."""
        signals, written = {}, {}
        self._hold()
        for name, tier in self.tiers.items():
            if tier.asked is not None and self.seconds >= tier.changing_until:
                (home, away), tier.asked = tier.asked, None
                tier.workers, tier.bounds = home + away, replace(tier.bounds, away=away)
            arrived = (
                sum(written[writer] for writer in tier.inputs) if tier.inputs else self.rate(self.seconds)
            )
            capacity = min(tier.workers * tier.per_worker, tier.most)
            waits = self.held and not tier.inputs
            done = 0.0 if waits else min(capacity, arrived + tier.lag / LOOK)
            tier.lag = max(0.0, tier.lag + (arrived - done) * LOOK)
            written[name] = done * tier.writes
            useful = done / capacity if capacity else 0.0
            fixed = min(tier.fixed, 1 - useful)
            signals[name] = Signals(
                rate_in=arrived,
                rate_done=done,
                rate_out=written[name],
                busy=useful + fixed if capacity else 0.0,
                workers=tier.workers,
                lag=int(tier.lag),
                lag_seconds=tier.lag / done if done else 0.0,
                starved=tier.starved,
                throttled=waits,
                fixed=fixed,
            )
        return Observation(
            now=START + self.seconds,
            signals=signals,
            bounds={name: tier.bounds for name, tier in self.tiers.items()},
            inputs={name: tier.inputs for name, tier in self.tiers.items()},
            change_seconds=self.change_seconds,
            boot_seconds=self.boot_seconds,
            changing=frozenset(name for name, tier in self.tiers.items() if tier.asked is not None),
        )

    def _hold(self) -> None:
        if self.watermarks is not None:
            low, high = self.watermarks
            lag = max(tier.lag for tier in self.tiers.values() if tier.inputs)
            self.held = lag > (low if self.held else high)

    def step(self) -> tuple[Observation, dict[str, Decision]]:
        """Observe, plan, and begin the changes."""
        observation = self.observe()
        decisions, self.memory = plan(observation, self.settings, self.memory)
        for name, decision in decisions.items():
            tier = self.tiers[name]
            number = (decision.wanted, max(decision.away, tier.not_ours))
            if decision.mode is Mode.ACT and sum(number) != tier.workers and tier.asked is None:
                tier.asked, tier.changing_until = number, self.seconds + self.change_seconds
        self.seconds += LOOK
        return observation, decisions

    def run(self, seconds: float) -> Iterator[tuple[Observation, dict[str, Decision]]]:
        """Yield each look of so many seconds."""
        end = self.seconds + seconds
        while self.seconds < end:
            yield self.step()
