"""Smoothed figures of a tier, and the elapsed time between two looks."""

import math

from sluice_ops.model.scaler import Readings
from sluice_ops.planning.scaler.demand import TOLERATED_SECONDS
from sluice_ops.planning.scaler.signals import Signals

SMOOTHING_SECONDS = 10.0
"""After this time, 63 % of a step of the load are in the smoothed figures. Unit: seconds."""
BEST_SECONDS = 600.0
"""After this time, 37 % of an earlier best rate are left. Unit: seconds."""
LAG_SECONDS = 60.0
"""After this time, 63 % of a step of the lag are in its mean. Unit: seconds."""
LEAST_BUSY = 0.01
"""Workers that are less busy than this tell nothing about their capacity."""


def elapsed(now: float, since: float) -> float:
    """Return the seconds since a wall clock time; infinite if the clock was set back before it."""
    return now - since if now >= since else math.inf


def smooth(signals: Signals, now: float, before: Readings | None, *, changing: bool) -> Readings:
    """Return a tier's smoothed figures after one more look."""
    past = before if before is not None else _first(signals, now)
    seconds = elapsed(now, past.at)

    def smoothed(old: float, new: float, weight: float = 1.0, over: float = SMOOTHING_SECONDS) -> float:
        return new + (old - new) * math.exp(-seconds * weight / over)

    per_worker = past.per_worker
    measured, certainty = _per_worker(signals)
    if measured is not None and not changing:
        per_worker = measured if per_worker is None else smoothed(per_worker, measured, certainty)
    rate_done = smoothed(past.rate_done, signals.rate_done)
    return Readings(
        at=now,
        rate_in=smoothed(past.rate_in, signals.rate_in),
        rate_done=rate_done,
        best_done=max(rate_done, past.best_done * math.exp(-seconds / BEST_SECONDS)),
        rate_out=smoothed(past.rate_out, signals.rate_out),
        per_worker=per_worker,
        lag_mean=smoothed(past.lag_mean, signals.lag, over=LAG_SECONDS),
    )


def lag_grows(signals: Signals, readings: Readings) -> bool:
    """Return whether clearly more records wait than in the last minutes.

    A few seconds' records more or less are noise: they wait for the next micro-batch.
    """
    return signals.lag - readings.lag_mean > readings.rate_in * TOLERATED_SECONDS


def _first(signals: Signals, now: float) -> Readings:
    return Readings(
        at=now,
        rate_in=signals.rate_in,
        rate_done=signals.rate_done,
        rate_out=signals.rate_out,
        best_done=signals.rate_done,
        per_worker=None,
        lag_mean=signals.lag,
    )


def _per_worker(signals: Signals) -> tuple[float | None, float]:
    """Return the rate of a worker that is busy all the time, and how certain it is, from 0 to 1.

    The time that a batch takes whatever its records is no part of it: with more records, batches
    are longer and fewer. Batches of few records may follow each other all the time, and their
    workers still have nearly all their capacity left.
    """
    rate = signals.rate_done / signals.workers if signals.workers else 0.0
    if signals.busy < LEAST_BUSY or not rate:
        return None, 0.0
    useful = max(LEAST_BUSY, signals.busy - signals.fixed)
    return rate / useful, useful
