"""The forecast of past weeks lets workers start before a spike that comes each day."""

import numpy as np

from tests.simulation.scaling.run import run
from tests.simulation.scaling.scalers.sluice import Sluice
from tests.simulation.scaling.traces import DAY, HOUR, MINUTE, PEAK, Trace, Values


def spike_at_noon(at: Values) -> Values:
    """Return a fifth of the peak, and from 12:00 to 13:00 the peak."""
    ends = (12 * HOUR, 12 * HOUR + 5 * MINUTE, 13 * HOUR - 5 * MINUTE, 13 * HOUR)
    return PEAK * np.interp(at % DAY, ends, (0.2, 1, 1, 0.2))


def test_records_wait_less_once_a_week_of_spikes_is_known():
    done = run(Trace("noon", 7 * DAY + 14 * HOUR, spike_at_noon, step=45.0, decision=90.0), Sluice())
    week = done.at <= 7 * DAY
    first, second = done.lag_seconds[week].max(), done.lag_seconds[~week].max()
    print(f"the longest wait: {first:.0f} s in the first week, {second:.0f} s on the same day of the second")
    assert second < first / 2
