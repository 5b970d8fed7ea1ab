"""Tells whether a burst is ready before the present workers clear the lag. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from sluice_ops.model.ids import TierName
from sluice_ops.model.instance_receipt import InstanceReceipt
from sluice_ops.model.load import TierLoad
from sluice_ops.model.scaler import Readings
from sluice_ops.model.wording import workers
from sluice_ops.planning.placement.pace import LAST, Pace
from sluice_ops.planning.scaler.demand import TOLERATED_SECONDS


@dataclass(frozen=True)
class BreakEven:
    """The comparison. It refuses nothing: load that is still to come may need the burst."""

    too_late: bool
    """Whether the lag is cleared before the burst is ready."""
    sentence: str


def boot_seconds(receipts: Iterable[InstanceReceipt]) -> float | None:
    """Return the median time from launch to agent of the last instances; None if none was timed."""
    timed = sorted(
        (each.joined_at, each.joined_at - each.launched_at) for each in receipts if each.joined_at is not None
    )
    return median(seconds for _, seconds in timed[-LAST:]) if timed else None


def change_seconds(pace: Pace, *, in_place: bool) -> float:
    """Return the predicted time until a tier uses hosts that have joined."""
    return pace.seconds(0, 0, to_grow=1) if in_place else pace.seconds(1, 1)


def break_even(
    tier: TierName, load: TierLoad | None, readings: Readings | None, boot: float | None, change: float
) -> BreakEven:
    """Compare a burst with waiting.

    `load` is fresh; None: there is none. `readings` are those of the scaler. `boot` and `change`
    are predicted seconds; `boot` is None if no instance was timed yet, and 0 if none is launched.
    """
    ready = (boot or 0.0) + change
    if boot is None:
        when = f"more than {ready:.0f} s (the change; no instance has been timed yet)"
    elif boot:
        when = f"about {ready:.0f} s (instances {boot:.0f} s, change {change:.0f} s)"
    else:
        when = f"about {ready:.0f} s (the change; no instance is launched)"
    if load is None:
        sentence = (
            f"whether the burst comes in time is not known, because the driver of {tier} reports no load; "
            f"the burst is ready in {when}"
        )
        return BreakEven(too_late=False, sentence=sentence)
    if not load.lag or load.lag_seconds <= TOLERATED_SECONDS:
        sentence = f"{tier} has no lag now, so the burst only helps with load to come; it is ready in {when}"
        return BreakEven(too_late=True, sentence=sentence)
    arriving = load.rate_in if readings is None else readings.rate_in
    per_worker = None if readings is None else readings.per_worker
    capacity = load.rate_done if per_worker is None else per_worker * load.workers
    clear = load.lag / (capacity - arriving) if capacity > arriving else math.inf
    rates = f"{arriving:,.0f}/s arrive, and its {workers(load.workers)} process {capacity:,.0f}/s"
    if math.isinf(clear):
        sentence = (
            f"the lag of {tier}, {load.lag:,} records, does not shrink without the burst ({rates}); "
            f"the burst is ready in {when}"
        )
        return BreakEven(too_late=False, sentence=sentence)
    cleared = (
        f"{tier} clears its lag of {load.lag:,} records without the burst in about {clear:.0f} s ({rates})"
    )
    if clear < ready:
        sentence = (
            f"the burst comes too late: it is ready in {when}; {cleared}. Wait, unless more load is to come"
        )
        return BreakEven(too_late=True, sentence=sentence)
    comes = "may come" if boot is None else "comes"
    sentence = f"the burst {comes} in time: it is ready in {when}; {cleared}"
    return BreakEven(too_late=False, sentence=sentence)
