"""The optimum: the cheapest sizes for a load that is known beforehand.

At each moment a tier has the fewest workers that take the load at the target utilisation. The load
is the mean of the seconds for which a record may wait. Each size lasts at least half an hour, which
is two changes an hour. A change costs nothing and takes no time.
"""

import numpy as np

from tests.simulation.scaling.pipeline import UTILISATION
from tests.simulation.scaling.traces import GAIN, MINUTE, TIERS, SimulatedTier, Trace, Values

LAG_LIMIT = 120.0
"""Seconds that a record may wait: the high watermark of a stream."""
CELL = MINUTE
SHORTEST = 30
"""Cells that a size lasts at least."""


def needs(trace: Trace, tier: SimulatedTier) -> Values:
    """Return the fewest workers that suffice in each minute of the trace."""
    samples = 12
    at = np.arange(0, trace.seconds, CELL / samples)
    window = round(LAG_LIMIT / CELL * samples)
    load = trace.load(at) * GAIN[tier.name] / trace.rates(tier, at)
    padded = np.pad(load, (window // 2, window - window // 2 - 1), mode="edge")
    mean = np.convolve(padded, np.full(window, 1 / window), mode="valid")
    workers = np.maximum(1, np.ceil(mean.reshape(-1, samples).max(axis=1) / UTILISATION - 1e-9))
    fault = trace.fault
    if fault and fault.tier == tier.name and fault.processors is not None:
        minutes = np.arange(len(workers)) * CELL
        busy = (minutes >= fault.start) & (minutes < fault.end)
        workers[busy] = np.minimum(workers[busy], fault.processors)
    return workers


def cheapest(need: Values, shortest: int = SHORTEST) -> Values:
    """Return the sizes of the lowest sum, never below the need, that each last `shortest` cells.

    The first and the last size may last less.
    """
    count = len(need)
    longest = 2 * shortest - 1
    peaks = np.full((longest + 1, count + 1), np.inf)
    peaks[1, 1:] = need
    for length in range(2, longest + 1):
        peaks[length, length:] = np.maximum(peaks[length - 1, length - 1 : -1], need[length - 1 :])
    lengths = np.arange(longest + 1)
    cost = np.full(count + 1, np.inf)
    cost[0] = 0.0
    chosen = np.zeros(count + 1, dtype=int)
    for end in range(1, count + 1):
        edge = end < longest + 1 or end == count
        first = 1 if edge else shortest
        last = min(longest, end)
        span = lengths[first : last + 1]
        totals = cost[end - span] + span * peaks[span, end]
        if end < longest + 1 and end != count:
            totals[(span < shortest) & (end - span > 0)] = np.inf
        best = int(np.argmin(totals))
        cost[end], chosen[end] = totals[best], span[best]
    sizes = np.zeros(count)
    end = count
    while end:
        sizes[end - chosen[end] : end] = peaks[chosen[end], end]
        end -= chosen[end]
    return sizes


def optimum(trace: Trace) -> dict[str, Values]:
    """Return the cheapest size of each tier in each minute of the trace."""
    return {tier.name: cheapest(needs(trace, tier)) for tier in TIERS}
