"""One scaler on one trace."""

from dataclasses import dataclass

import numpy as np

from sluice_ops.model.ids import TierName
from tests.simulation.scaling.pipeline import Pipeline
from tests.simulation.scaling.scalers.protocol import Scaler
from tests.simulation.scaling.traces import TIERS, Trace, Values


@dataclass(frozen=True)
class Change:
    at: float
    """Second of the trace at which it was requested."""
    tier: TierName
    before: int
    after: int


@dataclass(frozen=True)
class Run:
    trace: Trace
    scaler: str
    at: Values
    """Seconds of the trace at which the scaler decided."""
    sizes: dict[TierName, Values]
    """Workers at these times."""
    lag_seconds: Values
    """The longest wait in any tier since the time before."""
    slot_seconds: float
    changes: tuple[Change, ...]


def run(trace: Trace, scaler: Scaler) -> Run:
    """Let the scaler decide over the whole trace."""
    pipeline = Pipeline(trace)
    steps = round(trace.decision / trace.step)
    at: list[float] = []
    lags: list[float] = []
    sizes: dict[TierName, list[int]] = {tier.name: [] for tier in TIERS}
    changes: list[Change] = []
    while not pipeline.ended:
        lag = 0.0
        for _ in range(steps):
            pipeline.step()
            lag = max(lag, *(tier.lag_seconds for tier in pipeline.tiers.values()))
        at.append(pipeline.at)
        lags.append(lag)
        for name, tier in pipeline.tiers.items():
            sizes[name].append(tier.workers)
        begun = pipeline.scale(scaler.decide(pipeline.measure()))
        changes += [Change(pipeline.at, *change) for change in begun]
    return Run(
        trace,
        scaler.name,
        np.array(at),
        {name: np.array(values) for name, values in sizes.items()},
        np.array(lags),
        pipeline.slot_seconds,
        tuple(changes),
    )
