"""The judge: how well a scaler did on a trace, and the bars that Sluice's scaler keeps."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from tests.simulation.scaling.optimum import CELL, LAG_LIMIT, needs, optimum
from tests.simulation.scaling.run import Run
from tests.simulation.scaling.traces import DAY, HOUR, TIERS, SimulatedTier, Trace

MOST_STEPS = 2
MOST_CHANGES_AN_HOUR = 2
MOST_COST = 1.15
MOST_ATTEMPTS = 1
TOLERANCE = 1.1
"""A size is reached when it takes the load at this part of the target utilisation."""


@dataclass(frozen=True)
class Verdict:
    trace: Trace
    scaler: str
    steps: float | None
    """Changes of a tier until it had the size that a new level of load needs, the most of all
    tiers. Infinite: never. None: the trace has no levels.
    """
    hourly: int
    """Most changes of one tier within an hour, after the first day of a trace of several days."""
    daily: float
    """Changes of all tiers a day."""
    lag: float
    """The longest wait, in seconds, in any tier, where the trace excuses none."""
    late: float
    """Seconds for which it was over the limit there."""
    cost: float
    """Slot-hours as a multiple of the optimum's."""
    attempts: int | None
    """Growths of the tier that a fault makes slow, while it lasts; None: the trace has no fault."""

    @property
    def in_vain(self) -> bool:
        """Whether the scaler tries more than once to get work out of processors that are busy."""
        fault = self.trace.fault
        return fault is not None and fault.processors is not None and (self.attempts or 0) > MOST_ATTEMPTS

    @property
    def missed(self) -> tuple[str, ...]:
        """The bars that this run does not keep."""
        bars = {
            f"needed size in {self.steps} steps, at most {MOST_STEPS}": self.steps is not None
            and self.steps > MOST_STEPS,
            f"{self.hourly} changes an hour, at most {MOST_CHANGES_AN_HOUR}": self.trace.changes_bar
            and self.hourly > MOST_CHANGES_AN_HOUR,
            f"lag {self.lag:.0f} s, at most {LAG_LIMIT:.0f} s": self.lag > LAG_LIMIT,
            f"slot-hours {self.cost:.3f} of the optimum, at most {MOST_COST}": self.cost > MOST_COST,
            f"{self.attempts} growths on busy processors, at most {MOST_ATTEMPTS}": self.in_vain,
        }
        return tuple(bar for bar, missed in bars.items() if missed)


def judge(run: Run) -> Verdict:
    """Judge one run."""
    trace = run.trace
    judged = np.ones(len(run.at), dtype=bool)
    if trace.excused:
        begin, end = trace.excused
        judged = (run.at < begin) | (run.at >= end)
    lags = run.lag_seconds[judged]
    best = sum(float(sizes.sum()) for sizes in optimum(trace).values()) * CELL
    return Verdict(
        trace,
        run.scaler,
        steps=_steps(run) if trace.shifts else None,
        hourly=_hourly(run),
        daily=len(run.changes) / trace.seconds * DAY,
        lag=float(lags.max()),
        late=float((lags > LAG_LIMIT).sum()) * trace.decision,
        cost=run.slot_seconds / best,
        attempts=_attempts(run),
    )


def _steps(run: Run) -> float:
    ends = [*run.trace.shifts[1:], run.trace.seconds]
    return max(
        _steps_of(run, tier, begin, end)
        for begin, end in zip(run.trace.shifts, ends, strict=True)
        for tier in TIERS
    )


def _steps_of(run: Run, tier: SimulatedTier, begin: float, end: float) -> float:
    """Return the changes of a tier until it has the size that its load between two times needs."""
    need = needs(run.trace, tier)
    before, after = need[int(begin / CELL) - 2], need[int((begin + end) / 2 / CELL)]
    changes = [change for change in run.changes if change.tier == tier.name and begin <= change.at < end]
    size = float(run.sizes[tier.name][bisect_left(run.at.tolist(), begin)])
    for count, reached in enumerate([size, *(change.after for change in changes)]):
        if reached >= np.ceil(after / TOLERANCE) if after > before else reached <= np.ceil(after * TOLERANCE):
            return count
    return np.inf


def _hourly(run: Run) -> int:
    most = 0
    first = DAY if run.trace.seconds > DAY else 0.0
    for tier in TIERS:
        times = [change.at for change in run.changes if change.tier == tier.name and change.at >= first]
        for index, time in enumerate(times):
            most = max(most, bisect_left(times, time + HOUR) - index)
    return most


def _attempts(run: Run) -> int | None:
    fault = run.trace.fault
    if fault is None:
        return None
    return sum(
        change.tier == fault.tier and change.after > change.before and fault.start <= change.at < fault.end
        for change in run.changes
    )
