"""The control law of backpressure: how many records a gate lets in (decision 64). Pure.

The driver of a lagging tier computes the rate at which records should come into the tier's stream.
The controller converts that rate into records of each gate.
"""

from collections.abc import Sequence

from sluice_ops.model.backpressure import Lag, Pressure, Watermarks, is_over

SETTLE_SECONDS = 30.0
"""The time in which the wanted rate moves a lag to halfway between its watermarks.

It is some times the delay from a record's admission to the lag that the controller hears of. With
half of it, the lag swings.
"""
MOST = 1.5
"""The highest wanted rate, as a multiple of the rate at which the tier processes records."""
LITTLE = 0.1
"""The records that a gate may let in for each record that the lagging tier wants, as long as
nothing is measured.
"""
BAND = 0.05
"""A new rate that differs by less than this part from the admitted one changes nothing."""


def wanted_rate(lag: Lag, marks: Watermarks, capacity: float | None) -> float:
    """Return how many records should come into a stream each second.

    The lag then settles halfway between the watermarks. `capacity` is the rate at which the tier
    processes records while enough of them wait. Below the low watermark it may have become larger.
    """
    if not capacity or lag.records > marks.high.records:
        return 0.0
    if not is_over(lag, marks, before=True):
        return capacity * MOST
    records = (marks.low.records + marks.high.records) / 2
    seconds = (marks.low.seconds + marks.high.seconds) / 2
    too_much = max((lag.records - records) / capacity, lag.seconds - seconds)
    return capacity * min(MOST, max(0.0, 1 - too_much / SETTLE_SECONDS))


def admitted_rate(before: float, taken: float | None, pressures: Sequence[Pressure]) -> float:
    """Return how many records a gate may let in each second.

    `before` is the present admitted rate, `taken` the rate at which the gate took records; None:
    not measured yet. `pressures` are those of all lagging tiers after the gate. The strictest of
    them decides. A tier gets as much more or less as it wants more or less than what came in.
    """
    rate = min(pressure.rate_wanted * _for_each(taken, pressure.rate_in) for pressure in pressures)
    if before and rate and (taken is None or abs(rate / before - 1) < BAND):
        return before
    return float(f"{rate:.3g}")


def _for_each(taken: float | None, rate_in: float | None) -> float:
    """Return how many records the gate takes for each record that comes into the lagging tier."""
    return taken / rate_in if taken and rate_in else LITTLE
