"""Placement when room is short.

Each tenant gets its minimum before any tenant gets more, and tenants lose as few slots as possible.
`plan` calls this module for changes; the controller calls it to start a tier or to replace lost
slots.
"""

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
from sluice_ops.model.tier import TierSpec
from sluice_ops.planning.placement.cluster import Cluster, Hosts, RefusedError, Rules, TierNow, at, holding
from sluice_ops.planning.placement.requests import DRIVER, Places, Request
from sluice_ops.planning.placement.shares import (
    Target,
    fewest_for_threads,
    is_below_pipeline_minimum,
    limits,
    target,
)
from sluice_ops.planning.placement.solver import (
    Placed,
    more_slots,
    place,
    place_tier,
    placement_of,
    tier_requests,
)

T = TypeVar("T")
at_home = at(None)
"""Tells whether a host is one of the site's own."""


def largest_accepted(top: int, attempt: Callable[[int], T]) -> tuple[int, T]:
    """Return the largest number up to `top` that `attempt` accepts, and the result.

    `attempt` raises RefusedError for numbers that are too large. Raise RefusedError if it refuses
    0.
    """
    try:
        return top, attempt(top)
    except RefusedError:
        if top == 0:
            raise
    low, result = 0, attempt(0)
    while top - low > 1:
        middle = (low + top) // 2
        try:
            low, result = middle, attempt(middle)
        except RefusedError:
            top = middle
    return low, result


def batch_minimum(cluster: Cluster) -> int:
    """Return the slots that batch keeps, whatever the tiers lack.

    While tiers lack some of the pipeline's minimum, batch can always give back one slot more: room
    may be scattered over the hosts.
    """
    minimum = limits(BATCH, cluster.rules).minimum
    if cluster.rules.pipeline_share is None:
        return minimum
    held: dict[str, int] = {
        name: sum(at_home(cluster.hosts[slot]) for slot in tier.placement.slots if slot in cluster.hosts)
        for name, tier in cluster.tiers.items()
        if tier.placement is not None
    }
    if not is_below_pipeline_minimum(held, cluster.rules):
        return minimum
    return min(minimum, max(0, len(cluster.batch) - 1))


def fewest_slots(spec: TierSpec, rules: Rules) -> int:
    """Return the fewest slots with which a tier can run.

    This is its minimum. A realtime tier also needs a thread for each partition. A light tier needs
    none.
    """
    return 0 if spec.light else max(1, limits(spec.name, rules).minimum, fewest_for_threads(spec, rules))


def fewest_slots_in_change(spec: TierSpec, aim: Target, now: Placement | None, rules: Rules) -> int:
    """Return the fewest slots that a change may leave a tier.

    A tier needs its fewest slots (`fewest_slots`), and its share less its budget. It can do without
    spares. A tier that already has fewer slots than the budget allows keeps what it has.
    """
    fewest = min(aim.slots, fewest_slots(spec, rules))
    allowed = rules.budget.get(spec.name)
    if allowed is None or now is None:
        return fewest
    return max(fewest, min(aim.slots - allowed, len(now.slots) - aim.extra))


def missing_in_equal_parts(
    names: Collection[TierName],
    spare: Mapping[TierName, int],
    fewer: Mapping[TierName, int],
    attempt: Callable[[Mapping[TierName, int]], object],
) -> dict[TierName, int]:
    """Return how many slots of its share each tier does not get.

    The tiers `names` can each spare some slots. They get back the same part of their `spare` slots,
    and that part is as large as `attempt` accepts. The other tiers keep their numbers of `fewer`.
    """
    steps = max([1, *(spare[name] for name in names)])

    def at(step: int) -> dict[TierName, int]:
        return {**fewer, **{name: spare[name] - spare[name] * step // steps for name in names}}

    step, _ = largest_accepted(steps, lambda step: attempt(at(step)))
    return at(step)


def requests_for_minimums(cluster: Cluster, but: TierName | None = None) -> list[Request]:
    """Return requests for the units that tenants, except `but`, lack of their minimums.

    Room for these requests is kept free.
    """
    requests = [
        request
        for name, tier in sorted(cluster.tiers.items())
        if name != but
        for request in _lacking_of_tier(tier, cluster)
    ]
    short = batch_minimum(cluster) - len(cluster.batch) if BATCH in cluster.rules.shares else 0
    if short > 0:
        requests.append(Request(BATCH, short, cluster.rules.batch_quantum, target(BATCH, cluster.rules).to))
    return requests


def place_most(
    spec: TierSpec, aim: Target, now: Placement | None, cluster: Cluster
) -> tuple[Placement, Placed]:
    """Place a tier with its share, or with as many slots as fit beside room kept for other
    minimums.

    The returned hosts hold the tier, but not the room kept for others. Raise RefusedError if not
    even the tier's own minimum fits, whatever the other tenants lack.
    """
    fewest = min(aim.slots, fewest_slots(spec, cluster.rules))

    def attempt(more: int, kept: Iterable[Request]) -> Placed:
        return place(
            [*tier_requests(spec, aim.with_own(fewest + more), now, cluster.hosts), *kept],
            cluster.hosts,
        )

    placed = _beside(aim.own - fewest, requests_for_minimums(cluster, spec.name), attempt)
    placement = placement_of(spec.name, placed)
    is_alone = all(tenant == spec.name for tenant, _ in placed.where)
    return placement, placed if is_alone else replace(placed, hosts=holding(cluster.hosts, spec, placement))


def attempts(
    spec: TierSpec, aim: Target, now: Placement | None
) -> tuple[Callable[[Cluster], tuple[Placement, Placed]], ...]:
    """Return the attempts to place a tier in room that batch gives back.

    The first attempt places the whole share, the second as many slots as fit.
    """
    return lambda after: place_tier(spec, aim, now, after.hosts), lambda after: place_most(
        spec, aim, now, after
    )


def place_lost(
    spec: TierSpec, lost: int, alive: Collection[HostName], cluster: Cluster
) -> tuple[HostName, ...]:
    """Return the new hosts of a running tier's slots that were lost with their hosts.

    As many slots are placed as fit beside room kept for other minimums. Slots of the tier's own
    minimum are placed first, whatever the other tenants lack. `alive` are the hosts of its other
    slots.
    """
    needed = max(0, min(lost, fewest_slots(spec, cluster.rules) - len(alive)))
    aim = target(spec.name, cluster.rules)

    def attempt(more: int, kept: Iterable[Request]) -> Placed:
        return place([more_slots(spec, aim, more, alive), *kept], cluster.hosts)

    try:
        placed = _beside(
            lost - needed,
            requests_for_minimums(cluster, spec.name),
            lambda more, kept: attempt(needed + more, kept),
        )
    except RefusedError:
        _, placed = largest_accepted(needed, lambda count: attempt(count, ()))
    return placed.where[spec.name, "slots"]


def _beside(top: int, others: list[Request], attempt: Callable[[int, Iterable[Request]], Placed]) -> Placed:
    """Return the largest attempt that leaves room for `others`, as far as they find room at all.

    Raise RefusedError if the smallest attempt is refused.
    """
    try:
        placed = attempt(top, ())
    except RefusedError:
        if top == 0:
            raise
    else:
        if _surely_fits(others, placed.hosts):
            return placed
    smallest = attempt(0, ())
    kept: list[Request] = []
    for _, requests in groupby(others, key=attrgetter("tenant")):
        extended = [*kept, *requests]
        kept = extended if why_no_room_together(extended, smallest.hosts) is None else kept
    try:
        return largest_accepted(top, lambda more: attempt(more, kept))[1]
    except RefusedError:
        return smallest


def _surely_fits(requests: list[Request], hosts: Hosts) -> bool:
    """Return whether a cheap test shows that all requests fit.

    The test passes if each request has room wherever the other requests are placed.
    """
    largest = Quantum(
        cpu=max((request.quantum.cpu for request in requests), default=1),
        memory=max((request.quantum.memory for request in requests), default=1),
    )
    counts: Counter[str] = Counter()
    for request in requests:
        counts[request.tenant] += request.count
    dedicated = any(map(attrgetter("only"), hosts.values()))
    unlike = {
        (
            request.tenant if dedicated else "",
            request.count,
            request.to,
            request.spread,
            request.taken,
            request.separate,
        ): request
        for request in requests
    }
    return all(
        any(_surely_has_room(request, most, counts, largest, hosts) for most in {1, request.count})
        for request in unlike.values()
    )


def _surely_has_room(
    request: Request, most: int, counts: Counter[str], quantum: Quantum, hosts: Hosts
) -> bool:
    """Return whether a request has room wherever the units in `counts`, by tenant, are placed.

    Each unit counts as one `quantum`, and at most `most` units of the request go to one host. A
    unit of another tenant takes the largest part of a unit that it can take on any host. A unit
    from which the request has to be separate takes a whole host.
    """
    separate_units = sum(counts[name] for name in request.separate)
    other_units = counts.total() - request.count - separate_units
    places, matches = Places(request.spread or (), request.taken, hosts), at(request.to)
    room, largest_part = 0, 0.0
    for host in hosts.values():
        if room - largest_part * other_units - most * separate_units >= request.count:
            break
        if matches(host) and host.takes(quantum) and host.admits(request.tenant, request.separate):
            fitting = host.fits(quantum)
            taken = places.take(host, min(most, fitting))
            room, largest_part = room + taken, max(largest_part, taken / fitting)
    return room - largest_part * other_units - most * separate_units >= request.count


def why_no_room_together(requests: list[Request], hosts: Hosts) -> str | None:
    """Return why the requests find no room together; None if they do."""
    try:
        place(requests, hosts)
    except RefusedError as refused:
        return str(refused)
    return None


def _lacking_of_tier(tier: TierNow, cluster: Cluster) -> Iterable[Request]:
    """Yield requests for what a wanted tier lacks of its minimum: slots, and the driver if
    stopped.
    """
    if not tier.wanted or tier.awaits_upgrade:
        return
    spec, now, fewest = tier.spec, tier.placement, fewest_slots(tier.spec, cluster.rules)
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
        yield Request(spec.name, 1, spec.driver, aim.to, (), DRIVER, separate=aim.separate)
