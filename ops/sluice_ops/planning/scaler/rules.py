"""The rules of one decision, in the order in which they apply."""

import math
from dataclasses import dataclass

from sluice_ops.model.scaler import Mode
from sluice_ops.model.wording import counted, spares, workers
from sluice_ops.planning.scaler.readings import elapsed, lag_grows
from sluice_ops.planning.scaler.situation import Situation

HOUR = 3600.0


@dataclass(frozen=True)
class Verdict:
    """What a rule decided."""

    wanted: int
    away: int
    reason: str


def verdict(tier: Situation) -> Verdict:
    """Return the verdict of the first rule that applies to the tier."""
    rules = (_off, _held_by_another_layer, _without_figures, _change_under_way, _take_back, _grow, _shrink)
    return next((decided for rule in rules if (decided := rule(tier)) is not None), _stay(tier))


def _keep(tier: Situation, reason: str) -> Verdict:
    return Verdict(tier.wanted, tier.away, reason)


def _fewer(tier: Situation, total: int, reason: str) -> Verdict:
    """Return a verdict with fewer workers: those of bursts go first, because they cost most.

    Workers at home stay until a later decision: they leave in seconds, an instance takes longer.
    """
    if tier.away:
        return Verdict(tier.wanted, max(0, total - tier.wanted), reason)
    return Verdict(min(tier.wanted, total), 0, reason)


def changes_that_count(tier: Situation) -> tuple[float, ...]:
    """Return the times of the changes within the last hour."""
    return tuple(time for time in tier.memory.changes if elapsed(tier.now, time) < HOUR)


def _off(tier: Situation) -> Verdict | None:
    if tier.scaling.mode is not Mode.OFF:
        return None
    below = workers(tier.bounds.base)
    return Verdict(tier.wanted, 0, f"the scaler is off, and the layers below give {below}")


def _held_by_another_layer(tier: Situation) -> Verdict | None:
    if tier.bounds.held_by is None:
        return None
    need = "" if tier.needed is None else f", and {_need_in_words(tier)}"
    return _keep(tier, f"{tier.bounds.held_by} set {workers(tier.wanted)}{need}")


def _without_figures(tier: Situation) -> Verdict | None:
    if tier.signals is None:
        return _keep(tier, f"{_staying(tier)}, because no fresh figures came")
    if tier.needed is None:
        return _keep(tier, f"{_staying(tier)}, because the rate of one worker is not known yet")
    return None


def _change_under_way(tier: Situation) -> Verdict | None:
    if not tier.changing:
        return None
    return _keep(tier, f"{_staying(tier)} while a change is under way")


def _take_back(tier: Situation) -> Verdict | None:
    """Take back a growth that did not help: no other limit can be below the wanted number."""
    if tier.limit.workers >= tier.total:
        return None
    return _change_unless(_obstacle_to_less(tier), tier, _fewer(tier, tier.limit.workers, tier.limit.reason))


def _grow(tier: Situation) -> Verdict | None:
    """Grow to what the load needs, as far as the limits allow: at home first, then by a burst."""
    trend = tier.trend
    if trend is None or not trend.more:
        return None
    lasted = elapsed(tier.now, trend.since)
    if lasted < tier.scaling.grow_after:
        return _keep(
            tier, f"{_need_in_words(tier)}, for {lasted:.0f} s of {tier.scaling.grow_after:.0f} s so far"
        )
    total = min(tier.needed or 0, tier.limit.workers, math.ceil(tier.total * tier.scaling.step))
    if total <= tier.total:
        return _keep(tier, f"{_need_in_words(tier)}, but {tier.limit.reason}")
    wanted = min(total - tier.total + tier.wanted, tier.home)
    more_away = total - tier.total - (wanted - tier.wanted)
    late = ""
    if more_away and tier.clears_before_burst(total - more_away):
        enough, seconds = total - more_away, f"{tier.burst_seconds:.0f} s"
        clear = "clears" if enough == 1 else "clear"
        late = f", but {workers(enough)} {clear} the backlog before a burst is ready ({seconds})"
        more_away = 0
        if wanted == tier.wanted:
            return _keep(tier, f"{_need_in_words(tier)}{late}")
    away = max(tier.away, tier.bounds.away) + more_away if more_away else tier.away
    burst = f", {away} of them by a burst" if away else ""
    woken = min(tier.bounds.spares, wanted - tier.wanted)
    wakes = f", and the tier wakes {spares(woken)}" if woken else ""
    return _change_unless(
        _obstacle_to_more(tier), tier, Verdict(wanted, away, f"{_need_in_words(tier)}{late or burst}{wakes}")
    )


def _shrink(tier: Situation) -> Verdict | None:
    """Shrink to the most workers that the load has needed since it needs fewer than now."""
    trend = tier.trend
    if trend is None or trend.more or tier.total == tier.lowest:
        return None
    lasted = elapsed(tier.now, trend.since)
    if lasted < tier.scaling.shrink_after:
        until = f"until that lasts {tier.scaling.shrink_after:.0f} s ({lasted:.0f} s so far)"
        return _keep(tier, f"{_need_in_words(tier)}, and {_staying(tier)} {until}")
    total = max(trend.most, tier.lowest, math.ceil(tier.total / tier.scaling.step))
    reason = f"{_need_in_words(tier)}, and {trend.most} at most for {lasted:.0f} s"
    return _change_unless(_obstacle_to_less(tier), tier, _fewer(tier, total, reason))


def _staying(tier: Situation) -> str:
    is_reached = not tier.changing and tier.signals is not None and tier.signals.workers == tier.total
    return f"{workers(tier.total)} {'stays' if tier.total == 1 else 'stay'}{'' if is_reached else ' wanted'}"


def _stay(tier: Situation) -> Verdict:
    low, high = tier.scaling.limits
    if low <= tier.utilisation <= high:
        share = f"{tier.utilisation:.0%} of {workers(tier.total)}"
        return _keep(tier, f"{_load_in_words(tier)} take {share}, within {low:.0%} to {high:.0%}")
    at_minimum = tier.total == tier.lowest
    why = f"{tier.lowest} is its minimum" if at_minimum else f"{tier.total} are wanted already"
    return _keep(tier, f"{_need_in_words(tier)}, and {why}")


def _change_unless(obstacle: str | None, tier: Situation, change: Verdict) -> Verdict:
    """Return the change, or the present number with the obstacle."""
    return change if obstacle is None else _keep(tier, f"{change.reason}, but {obstacle}")


def _obstacle_to_more(tier: Situation) -> str | None:
    attempt = tier.memory.attempt
    if attempt is not None and attempt.ready is not None:
        return f"the effect of {workers(attempt.after)} is not known yet"
    return _obstacle_to_change(tier, tier.scaling.changes_per_hour - (not tier.overloaded))


def _obstacle_to_less(tier: Situation) -> str | None:
    """Return why the tier may not shrink; the last two changes of an hour are kept for growth."""
    signals, readings = tier.signals, tier.memory.readings
    if signals is not None and readings is not None and lag_grows(signals, readings):
        return f"{signals.lag:,} records wait, more than before"
    return _obstacle_to_change(tier, tier.scaling.changes_per_hour - 2)


def _obstacle_to_change(tier: Situation, budget: int) -> str | None:
    """Return why it is too early for a change; `budget` is how many an hour allows."""
    changes = changes_that_count(tier)
    if len(changes) >= budget:
        return f"it had {counted(len(changes), 'change')} within an hour"
    since = elapsed(tier.now, changes[-1]) if changes else math.inf
    if since < tier.scaling.cool_down:
        return f"its last change was {since:.0f} s ago"
    return None


def _need_in_words(tier: Situation) -> str:
    return f"{_load_in_words(tier)} need {workers(tier.needed or 0)}"


def _load_in_words(tier: Situation) -> str:
    foreseen = "foreseen " if tier.foreseen else ""
    backlog = f" and {tier.load.surplus:,.0f}/s of backlog" if tier.load.surplus >= 1 else ""
    return f"{tier.load.rate:,.0f} {foreseen}records/s{backlog}"
