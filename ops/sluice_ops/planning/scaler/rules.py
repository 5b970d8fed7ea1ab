"""The rules of one decision, in the order in which they apply."""

import math
from dataclasses import dataclass

from sluice_ops.model.scaler import Mode
from sluice_ops.model.wording import workers
from sluice_ops.planning.scaler.readings import elapsed
from sluice_ops.planning.scaler.situation import Situation

HOUR = 3600.0


@dataclass(frozen=True)
class Verdict:
    """What a rule decided."""

    wanted: int
    reason: str
    missing: int = 0
    """The further workers that find no room at home."""


def verdict(tier: Situation) -> Verdict:
    """Return the verdict of the first rule that applies to the tier."""
    rules = (_off, _held, _without_figures, _changing, _take_back, _grow, _shrink)
    return next((found for rule in rules if (found := rule(tier)) is not None), _stay(tier))


def changes_that_count(tier: Situation) -> tuple[float, ...]:
    """Return the times of the changes within the last hour."""
    return tuple(time for time in tier.memory.changes if elapsed(tier.now, time) < HOUR)


def _off(tier: Situation) -> Verdict | None:
    if tier.scaling.mode is not Mode.OFF:
        return None
    return Verdict(tier.wanted, f"the scaler is off, and the layers below give {workers(tier.bounds.base)}")


def _held(tier: Situation) -> Verdict | None:
    if tier.bounds.held_by is None:
        return None
    need = "" if tier.needed is None else f", and {_need(tier)}"
    return Verdict(tier.wanted, f"{tier.bounds.held_by} set {workers(tier.wanted)}{need}")


def _without_figures(tier: Situation) -> Verdict | None:
    if tier.signals is None:
        return Verdict(tier.wanted, f"{workers(tier.wanted)} stay, because no fresh figures came")
    if tier.needed is None:
        return Verdict(
            tier.wanted, f"{workers(tier.wanted)} stay, because the rate of one worker is not known yet"
        )
    return None


def _changing(tier: Situation) -> Verdict | None:
    if not tier.changing:
        return None
    return Verdict(tier.wanted, f"{workers(tier.wanted)} stay wanted while a change is under way")


def _take_back(tier: Situation) -> Verdict | None:
    """Take back a growth that did not help: no other limit can be below the wanted number."""
    if tier.limit.workers >= tier.wanted:
        return None
    return _unless(_obstacle_to_less(tier), tier, Verdict(tier.limit.workers, tier.limit.reason))


def _grow(tier: Situation) -> Verdict | None:
    """Grow to what the load needs, as far as the limits allow."""
    trend = tier.trend
    if trend is None or not trend.more:
        return None
    lasted = elapsed(tier.now, trend.since)
    if lasted < tier.scaling.grow_after:
        return Verdict(tier.wanted, f"{_need(tier)}, {_so_far(lasted, tier.scaling.grow_after)}")
    aim = min(tier.needed or 0, tier.highest, math.ceil(tier.wanted * tier.scaling.step))
    wanted = min(aim, tier.limit.workers)
    missing = aim - wanted if tier.limit.at_home else 0
    obstacle = tier.limit.reason if wanted <= tier.wanted else _obstacle_to_more(tier)
    return _unless(obstacle, tier, Verdict(wanted, _need(tier), missing))


def _shrink(tier: Situation) -> Verdict | None:
    """Shrink to the most workers that the load has needed since it needs fewer than now."""
    trend = tier.trend
    if trend is None or trend.more or tier.wanted == tier.lowest:
        return None
    lasted = elapsed(tier.now, trend.since)
    if lasted < tier.scaling.shrink_after:
        return Verdict(tier.wanted, f"{_need(tier)}, {_so_far(lasted, tier.scaling.shrink_after)}")
    wanted = max(trend.most, tier.lowest, math.ceil(tier.wanted / tier.scaling.step))
    reason = f"{_need(tier)}, and {trend.most} at most for {lasted:.0f} s"
    return _unless(_obstacle_to_less(tier), tier, Verdict(wanted, reason))


def _stay(tier: Situation) -> Verdict:
    low, high = tier.scaling.limits
    if low <= tier.utilisation <= high:
        share = f"{tier.utilisation:.0%} of {workers(tier.wanted)}"
        return Verdict(tier.wanted, f"{_load(tier)} take {share}, within {low:.0%} to {high:.0%}")
    why = (
        f"{tier.lowest} is its minimum" if tier.wanted == tier.lowest else f"{tier.wanted} are wanted already"
    )
    return Verdict(tier.wanted, f"{_need(tier)}, and {why}")


def _unless(obstacle: str | None, tier: Situation, change: Verdict) -> Verdict:
    """Return the change, or the present number with the obstacle."""
    if obstacle is None:
        return change
    return Verdict(tier.wanted, f"{change.reason}, but {obstacle}", change.missing)


def _obstacle_to_more(tier: Situation) -> str | None:
    attempt = tier.memory.attempt
    if attempt is not None and attempt.ready is not None:
        return f"the effect of {workers(attempt.after)} is not known yet"
    return _obstacle_to_change(tier, tier.scaling.changes_per_hour - (not tier.overloaded))


def _obstacle_to_less(tier: Situation) -> str | None:
    """Return why the tier may not shrink; the last two changes of an hour are kept for growth."""
    readings = tier.memory.readings
    if readings is not None and readings.lag_grows:
        return f"{readings.lag:,} records wait, more than before"
    return _obstacle_to_change(tier, tier.scaling.changes_per_hour - 2)


def _obstacle_to_change(tier: Situation, budget: int) -> str | None:
    """Return why it is too early for a change; `budget` is how many an hour allows."""
    changes = changes_that_count(tier)
    if len(changes) >= budget:
        return f"it had {len(changes)} changes within an hour"
    since = elapsed(tier.now, changes[-1]) if changes else math.inf
    if since < tier.scaling.cool_down:
        return f"its last change was {since:.0f} s ago"
    return None


def _need(tier: Situation) -> str:
    return f"{_load(tier)} need {workers(tier.needed or 0)}"


def _load(tier: Situation) -> str:
    foreseen = "foreseen " if tier.foreseen else ""
    backlog = f" and {tier.load.surplus:,.0f}/s of backlog" if tier.load.surplus >= 1 else ""
    return f"{tier.load.rate:,.0f} {foreseen}records/s{backlog}"


def _so_far(lasted: float, required: float) -> str:
    return f"for {lasted:.0f} s of {required:.0f} s so far"
