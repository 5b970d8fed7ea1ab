"""When room is short: every tenant gets its minimum before any gets more, and as little as can be is given up.

Called by `plan` for changes, and by the controller when it starts a tier or replaces lost slots.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from typing import TypeVar

from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Mode, TierSpec
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, Rules, TierNow, at, holding
from sluice_ops.planning.placement.requests import DRIVER, Ask, Places
from sluice_ops.planning.placement.shares import Target, limits, target
from sluice_ops.planning.placement.solver import (
    Placed,
    more_slots,
    place,
    place_tier,
    placement_of,
    tier_asks,
)

T = TypeVar("T")


def most(top: int, attempt: Callable[[int], T]) -> tuple[int, T]:
    """Return the largest number up to `top` for which the attempt is not refused, and its result; refused when that of 0 is."""
    try:
        return top, attempt(top)
    except RefusedError:
        if top == 0:
            raise
    low, found = 0, attempt(0)
    while top - low > 1:
        middle = (low + top) // 2
        try:
            low, found = middle, attempt(middle)
        except RefusedError:
            top = middle
    return low, found


def least(spec: TierSpec, rules: Rules) -> int:
    """Return the fewest slots that a tier can do with: its minimum, and a realtime tier has a thread for each partition."""
    minimum = max(1, limits(spec.name, rules).minimum)
    threads = rules.partitions_of(spec) if spec.mode is Mode.REALTIME else 0
    return max(minimum, math.ceil(threads / spec.quantum.threads))


def floor(spec: TierSpec, aim: Target, now: Placement | None, rules: Rules) -> int:
    """Return the fewest slots that a change may leave a tier: what it can do with, and all but what its budget lets be away.

    A tier that has fewer than that already is left no fewer than it has.
    """
    fewest = min(aim.slots, least(spec, rules))
    allowed = rules.budget.get(spec.name)
    if allowed is None or now is None:
        return fewest
    return max(fewest, min(aim.slots - allowed, len(now.slots) - aim.extra))


def same_part(
    names: Collection[TierName],
    spare: Mapping[TierName, int],
    fewer: Mapping[TierName, int],
    attempt: Callable[[Mapping[TierName, int]], object],
) -> dict[TierName, int]:
    """Return how many slots fewer than its share each tier gets, when these get the largest part that fits of what each can spare."""
    steps = max([1, *(spare[name] for name in names)])

    def at(step: int) -> dict[TierName, int]:
        return {**fewer, **{name: spare[name] - spare[name] * step // steps for name in names}}

    step, _ = most(steps, lambda step: attempt(at(step)))
    return at(step)


def lacking(cluster: Cluster, but: TierName | None = None) -> list[Ask]:
    """Say what the tenants, but one, lack of their minimum: room that is kept for them."""
    asks = [
        ask for name, tier in sorted(cluster.tiers.items()) if name != but for ask in _lacks(tier, cluster)
    ]
    short = limits(BATCH, cluster.rules).minimum - len(cluster.batch) if BATCH in cluster.rules.shares else 0
    if short > 0:
        asks.append(Ask(BATCH, short, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to))
    return asks


def place_most(
    spec: TierSpec, aim: Target, now: Placement | None, cluster: Cluster
) -> tuple[Placement, Placed]:
    """Place a tier with its share, or as much of it as there is room for beside what the others lack of their minimum.

    The hosts then hold the tier, and not what is kept for the others. RefusedError when not even its own minimum fits, whatever the others
    lack.
    """
    fewest = min(aim.slots, least(spec, cluster.rules))

    def attempt(more: int, kept: Iterable[Ask]) -> Placed:
        return place(
            [*tier_asks(spec, replace(aim, slots=fewest + more), now, cluster.hosts), *kept], cluster.hosts
        )

    placed = _beside(aim.slots - fewest, lacking(cluster, spec.name), attempt)
    placement = placement_of(spec.name, placed)
    alone = all(tenant == spec.name for tenant, _ in placed.where)
    return placement, placed if alone else replace(placed, hosts=holding(cluster.hosts, spec, placement))


def attempts(
    spec: TierSpec, aim: Target, now: Placement | None
) -> tuple[Callable[[Cluster], tuple[Placement, Placed]], ...]:
    """Return what is tried for a tier in room that batch makes: first its whole share, then as much of it as there is room for."""
    return lambda after: place_tier(spec, aim, now, after.hosts), lambda after: place_most(
        spec, aim, now, after
    )


def place_lost(
    spec: TierSpec, lost: int, alive: Collection[HostName], cluster: Cluster
) -> tuple[HostName, ...]:
    """Say where slots of a running tier go on that were lost with their hosts: as many as fit beside what the others lack of their minimum.

    What it lacks of its own it takes, whatever the others lack.
    """
    needed = max(0, min(lost, least(spec, cluster.rules) - len(alive)))
    aim = target(spec.name, cluster.rules)

    def attempt(more: int, kept: Iterable[Ask]) -> Placed:
        return place([more_slots(spec, aim, more, alive), *kept], cluster.hosts)

    try:
        placed = _beside(
            lost - needed, lacking(cluster, spec.name), lambda more, kept: attempt(needed + more, kept)
        )
    except RefusedError:
        _, placed = most(needed, lambda count: attempt(count, ()))
    return placed.where[spec.name, "slots"]


def _beside(top: int, others: list[Ask], attempt: Callable[[int, Iterable[Ask]], Placed]) -> Placed:
    """Return the largest attempt that leaves the others what they lack, as far as they can have it; refused when the smallest one is."""
    try:
        placed = attempt(top, ())
    except RefusedError:
        if top == 0:
            raise
    else:
        if _plenty(others, placed.hosts):
            return placed
    smallest = attempt(0, ())
    kept: list[Ask] = []
    for _, asks in groupby(others, key=attrgetter("tenant")):
        both = [*kept, *asks]
        kept = both if why_not(both, smallest.hosts) is None else kept
    try:
        return most(top, lambda more: attempt(more, kept))[1]
    except RefusedError:
        return smallest


def _plenty(asks: list[Ask], hosts: Hosts) -> bool:
    """Tell whether all of this surely fits, at a glance: when each ask would have room whatever of it the others take."""
    largest = Quantum(
        cpu=max((ask.quantum.cpu for ask in asks), default=1),
        memory=max((ask.quantum.memory for ask in asks), default=1),
    )
    counts: Counter[str] = Counter()
    for ask in asks:
        counts[ask.tenant] += ask.count
    dedicated = any(map(attrgetter("only"), hosts.values()))
    unlike = {
        (ask.tenant if dedicated else "", ask.count, ask.to, ask.spread, ask.taken, ask.separate): ask
        for ask in asks
    }
    return all(
        any(_finds(ask, most, counts, largest, hosts) for most in {1, ask.count}) for ask in unlike.values()
    )


def _finds(ask: Ask, most: int, counts: Counter[str], quantum: Quantum, hosts: Hosts) -> bool:
    """Tell whether there is room of this size for an ask, at most so many on a host, beside these counts of units, wherever they go.

    A unit of others takes from it the part of a unit that it may use of the host's room; or, where they have to be separate, the host.
    """
    apart = sum(counts[name] for name in ask.separate)
    others = counts.total() - ask.count - apart
    places, found, part, there = Places(ask.spread or (), ask.taken, hosts), 0, 0.0, at(ask.to)
    for host in hosts.values():
        if found - part * others - most * apart >= ask.count:
            break
        if there(host) and host.takes(quantum) and host.admits(ask.tenant, ask.separate):
            room = host.fits(quantum)
            put = places.take(host, min(most, room))
            found, part = found + put, max(part, put / room)
    return found - part * others - most * apart >= ask.count


def why_not(asks: list[Ask], hosts: Hosts) -> str | None:
    """Say why all of this finds no room; None when it does."""
    try:
        place(asks, hosts)
    except RefusedError as refused:
        return str(refused)
    return None


def _lacks(tier: TierNow, cluster: Cluster) -> Iterable[Ask]:
    """Yield what a tier that is wanted has not of its minimum: slots, and its driver when it does not run."""
    if not tier.wanted:
        return
    spec, now, fewest = tier.spec, tier.placement, least(tier.spec, cluster.rules)
    living = (
        slot
        for slot in (now.slots if now else ())
        if slot in cluster.hosts and cluster.hosts[slot].state is not HostState.LOST
    )
    alive = tuple(islice(living, fewest))
    if now is not None and len(alive) == fewest:
        return
    aim = target(spec.name, cluster.rules)
    fewest = min(aim.slots, fewest)
    if len(alive) < fewest:
        yield more_slots(spec, aim, fewest - len(alive), alive)
    if now is None:
        yield Ask(spec.name, 1, spec.driver, aim.to, (), DRIVER, separate=aim.separate)
