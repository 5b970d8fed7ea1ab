"""Placement of slots and drivers on hosts, as an integer min-cost flow.

Staying costs less than moving. Requests for the same quantum are solved together, the largest
quantum first. Within one quantum, the result is optimal and stable.

The flow has only the hosts and arcs that an optimum can need (`_candidates`, `_highest`). So a slot
is placed on ten thousand hosts in milliseconds. Limited racks and zones are nodes of the flow. A
request has no arc to a host where it may not be.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from operator import attrgetter

from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Host, Hosts, RefusedError, at, without_room
from sluice_ops.planning.placement.no_room import burst_missing, known, name_of, why_no_room
from sluice_ops.planning.placement.requests import DRIVER, EXTRA, Places, Request
from sluice_ops.planning.placement.shares import Target

NEW_COST = 100_000
"""The cost of a unit on a host where the tier had none.

It is above all that spreading and balancing can save, so that they never cause a move.
"""
PIN_COST = 100 * NEW_COST
"""The cost of a unit that fills no pin, if units of its tier are pinned.

It is above the cost of a chain of moves that makes room on the pinned host.
"""
SPREAD_COST = 100
"""The cost of each further unit of a tier on one host, so that a lost host costs a tier little."""
BALANCE_COST = 90
"""The cost of a full host compared with an empty one. It is below one step of spreading."""
APART_COST = 200
"""The cost of a driver on a host without a worker of its tier.

If driver and worker share a host, the tier can lose fewer hosts, and a drain moves both at once.
"""
CROWD = 64
"""The units of a tier on one host above which spreading costs no more.

It keeps costs below NEW_COST.
"""

_Arc = tuple[int, int, int, int]
"""Tail, head, capacity in units, cost of a unit."""


@dataclass(frozen=True)
class Placed:
    """The result of a placement."""

    where: Mapping[tuple[str, str], tuple[HostName, ...]]
    """The hosts of each request, by tenant and part."""
    hosts: Hosts
    """The hosts with the placed units."""
    notes: tuple[str, ...]


def place(requests: Iterable[Request], hosts: Hosts) -> Placed:
    """Place all requests beside the units that the hosts already hold.

    Raise RefusedError, with the request and the reason, if one of them finds no room.
    """
    notes: list[str] = []
    eased = [_ease(request, hosts, notes) for request in requests]
    where: dict[tuple[str, str], tuple[HostName, ...]] = {}
    size = _size
    for _, group in groupby(
        sorted(eased, key=lambda request: (*size(request), request.tenant, request.part)), key=size
    ):
        same_size = [_with_workers(request, where.get((request.tenant, "slots"), ())) for request in group]
        for request, names in zip(same_size, _solve(same_size, hosts), strict=True):
            where[request.tenant, request.part] = names
            hosts = _hold(hosts, request, names)
    return Placed(where, hosts, tuple(notes))


def tier_requests(spec: TierSpec, target: Target, now: Placement | None, hosts: Hosts) -> list[Request]:
    """Return the requests of one incarnation of a tier: its slots, its driver, its burst slots."""
    slots = () if now is None else now.slots
    burst_slots = tuple(
        name for name in slots if target.extra and name in hosts and hosts[name].matches(target.extra_to)
    )[: target.extra]
    kept = list((Counter(slots) - Counter(burst_slots)).elements())
    driver = Request(
        spec.name,
        1,
        spec.driver,
        target.to,
        () if now is None else (now.driver,),
        DRIVER,
        separate=target.separate,
    )
    requests = [replace(more_slots(spec, target, target.own), keep=tuple(kept)), driver]
    if target.extra:
        requests.append(
            replace(more_slots(spec, target, target.extra), to=target.extra_to, keep=burst_slots, part=EXTRA)
        )
    return requests


def more_slots(spec: TierSpec, target: Target, count: int, taken: Iterable[HostName] = ()) -> Request:
    """Return a request for `count` workers of a tier beside its workers on `taken`."""
    return Request(
        spec.name,
        count,
        spec.quantum,
        target.to,
        spread=target.spread,
        taken=tuple(taken),
        separate=target.separate,
        pinned=target.pinned,
    )


def place_tier(
    spec: TierSpec, target: Target, now: Placement | None, hosts: Hosts
) -> tuple[Placement, Placed]:
    """Place one incarnation of a tier beside all units that the hosts hold."""
    placed = place(tier_requests(spec, target, now, hosts), hosts)
    return placement_of(spec.name, placed), placed


def placement_of(tier: str, placed: Placed) -> Placement:
    """Return the placement of a tier."""
    (driver,) = placed.where[tier, DRIVER]
    return Placement(
        driver=driver, slots=(*placed.where[tier, "slots"], *placed.where.get((tier, EXTRA), ()))
    )


def _size(request: Request) -> tuple[bool, int, float, bool]:
    """Return the sort key of a request.

    Workers come before drivers, which are placed beside them. Large quanta come first. Burst slots
    with a spread limit come after the tier's other slots, which count against the limit.
    """
    return (
        request.part == DRIVER,
        -request.quantum.memory,
        -request.quantum.cpu,
        request.part == EXTRA and request.spread is not None,
    )


def _with_workers(request: Request, slots: tuple[HostName, ...]) -> Request:
    """Return the request with the hosts of the tier's workers that are placed so far."""
    if request.part == DRIVER:
        return replace(request, beside=slots)
    return (
        replace(request, taken=(*request.taken, *slots))
        if request.part == EXTRA and request.spread is not None
        else request
    )


def _hold(hosts: Hosts, request: Request, names: Sequence[HostName]) -> Hosts:
    tier = None if request.tenant == BATCH else TierName(request.tenant)
    return {
        **hosts,
        **{name: hosts[name].holding(request.quantum, count, tier) for name, count in Counter(names).items()},
    }


def _ease(request: Request, hosts: Hosts, notes: list[str]) -> Request:
    """Drop a place where no host is up, because running elsewhere is better than not running.

    Burst slots are dropped instead. Raise RefusedError if no host has this place at all.
    """
    if request.to is None or request.count == 0:
        return request
    matches = at(request.to)
    if any(host.usable and matches(host) for host in hosts.values()):
        return request
    matching = [host for host in hosts.values() if matches(host)]
    if request.part == EXTRA:
        notes.append(burst_missing(request.tenant, request.count, request.to, hosts))
        return replace(request, count=0)
    if not matching:
        message = f"{name_of(request)} has to be at {request.to}, and there is no such host; {known(hosts)}"
        raise RefusedError(message)
    states = listed(f"{host.name} is {host.state}" for host in matching)
    notes.append(
        f"{request.tenant} has to be at {request.to}, but {states}: "
        f"{request.tenant} may run anywhere until it is moved again"
    )
    return replace(request, to=None)


def _solve(requests: Sequence[Request], hosts: Hosts) -> list[tuple[HostName, ...]]:
    """Place requests of one quantum.

    The flow goes from request to host to sink, with arcs of one unit. Limited zones and racks are
    nodes between request and host. Raise RefusedError if a request finds no room.
    """
    quantum = requests[0].quantum
    wanted = sum(request.count for request in requests)
    candidates = [_candidates(request, wanted, hosts) for request in requests]
    if (
        len(requests) == 1
        and not requests[0].keep
        and not requests[0].beside
        and all(requests[0].pinned_on(name) <= 1 for name in requests[0].pinned)
        and len(candidates[0]) == wanted
    ):
        # Nothing to weigh: one unit on each of the pinned and the emptiest hosts.
        return [_pinned_first(requests[0], [host.name for host in candidates[0]])]
    host_nodes = {
        name: node
        for node, name in enumerate(
            sorted({host.name for allowed in candidates for host in allowed}), start=len(requests)
        )
    }
    sink = len(requests) + len(host_nodes)
    arcs: list[_Arc] = []
    """The arcs to hosts first, in the order of the requests; then the arcs to the sink."""
    arc_units: list[tuple[int, HostName]] = []
    """The request and the host of each arc to a host."""
    place_arcs: list[_Arc] = []
    """The arcs to limited zones and racks."""
    arriving: Counter[HostName] = Counter()
    for row, (request, allowed) in enumerate(zip(requests, candidates, strict=True)):
        kept, highest = Counter(request.keep), _highest(request, allowed, wanted, hosts)
        tails, more_arcs = _places(request, row, allowed, hosts, sink + 1 + len(place_arcs))
        place_arcs += more_arcs
        for host in allowed:
            most = max(kept[host.name], request.pinned_on(host.name), highest)
            count = min(request.left_on(host), host.fits(quantum), most)
            costs = _costs(request, host, kept[host.name], count)
            tail, head = tails.get(host.name, row), host_nodes[host.name]
            arcs.extend((tail, head, 1, cost) for cost in costs)
            arc_units += [(row, host.name)] * len(costs)
            arriving[host.name] += len(costs)
    for name, most in arriving.items():
        arcs.extend(
            (host_nodes[name], sink, 1, cost)
            for cost in _balance(hosts[name], quantum, min(most, hosts[name].fits(quantum)))
        )
    placed: list[list[HostName]] = [[] for _ in requests]
    for arc in _arcs_with_flow([*arcs, *place_arcs], [request.count for request in requests], sink):
        if arc < len(arc_units):
            row, name = arc_units[arc]
            placed[row].append(name)
    for request, names in zip(requests, placed, strict=True):
        if len(names) < request.count:
            raise RefusedError(why_no_room(request, len(names), hosts))
    return [_pinned_first(request, names) for request, names in zip(requests, placed, strict=True)]


def _pinned_first(request: Request, names: Iterable[HostName]) -> tuple[HostName, ...]:
    """Return the hosts in order, those of pinned units first: a tier releases its last workers."""
    counts = Counter(names)
    pinned = Counter({name: min(count, request.pinned_on(name)) for name, count in counts.items()})
    return (*sorted(pinned.elements()), *sorted((counts - pinned).elements()))


def _places(
    request: Request, row: int, allowed: Sequence[Host], hosts: Hosts, node: int
) -> tuple[dict[HostName, int], list[_Arc]]:
    """Return the node before each host, and the arcs to the limited zones and racks of a request.

    The first new node has the number `node`. The capacity of an arc is what the limit leaves.
    """
    tails: dict[HostName, int] = {}
    place_arcs: list[_Arc] = []
    if request.spread is None:
        return tails, place_arcs
    for kind, most in (("zone", request.spread.zone), ("rack", request.spread.rack)):
        if most is None:
            continue
        taken = Counter(hosts[name].within(kind) for name in request.taken if name in hosts)
        heads: dict[str, int] = {}
        for host in allowed:
            place = host.within(kind)
            if place not in heads:
                heads[place] = node + len(place_arcs)
                place_arcs.append((tails.get(host.name, row), heads[place], max(0, most - taken[place]), 0))
            tails[host.name] = heads[place]
    return tails, place_arcs


def _arcs_with_flow(arcs: Sequence[_Arc], supplies: Sequence[int], sink: int) -> list[int]:
    """Return the arcs with flow in the cheapest of the largest flows from the requests to
    the sink.
    """
    if not arcs:
        return []
    # The import takes 55 ms, and only the controller plans.
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow  # noqa: PLC0415

    flow = SimpleMinCostFlow()
    for row, supply in enumerate(supplies):
        flow.set_node_supply(row, supply)
    flow.set_node_supply(sink, -sum(supplies))
    numbers = flow.add_arcs_with_capacity_and_unit_cost(*zip(*arcs, strict=True))
    flow.solve_max_flow_with_min_cost()
    return [arc for arc, units in enumerate(flow.flows(numbers)) if units]


def _candidates(request: Request, wanted: int, hosts: Hosts) -> list[Host]:
    """Return the hosts on which an optimum can place a request.

    These are its current hosts, the first `wanted` hosts, and the emptiest hosts of the workers
    that a driver should be beside. Pinned hosts come first, then the emptiest. If racks or zones
    are limited, the first hosts within the limits count.

    These are enough: a result on any other host leaves one of the `wanted` hosts unused, which
    costs no more: it is emptier, or its unit fills a pin. A host beside workers costs less, so
    `wanted` such hosts make all others needless.
    """
    near = [*islice(_fit(request, _named(request.beside, hosts)), wanted)]
    pinned = {name: count for name in request.pinned if (count := request.pinned_on(name))}
    fit = chain(
        _fit(request, _named(pinned, hosts)),
        (host for host in _fit(request, hosts.values()) if host.name not in pinned),
    )
    first = () if len(near) == wanted else _first(request, fit, wanted, hosts)
    kept = _fit(request, _named(request.keep, hosts))
    return [*{host.name: host for host in (*first, *kept, *near)}.values()]


def _named(names: Iterable[HostName], hosts: Hosts) -> list[Host]:
    return [hosts[name] for name in dict.fromkeys(names) if name in hosts]


def _fit(request: Request, hosts: Iterable[Host]) -> Iterator[Host]:
    """Yield the hosts that may take a unit of a request, the emptiest first.

    The caller reads only as many as it needs, a few of ten thousand.
    """
    matches = at(request.to)
    for host in sorted(hosts, key=attrgetter("load")):
        if (
            matches(host)
            and host.takes(request.quantum)
            and host.admits(request.tenant, request.separate)
            and request.left_on(host)
        ):
            yield host


def _first(request: Request, fit: Iterator[Host], wanted: int, hosts: Hosts) -> Iterator[Host]:
    """Return the first `wanted` hosts of `fit`.

    If racks or zones are limited, return no more hosts of each than its limit. If other requests
    are solved too, return up to `wanted` hosts of each rack or zone.
    """
    if request.wide is None:
        return islice(fit, wanted)
    is_alone = wanted == request.count
    limits: Iterable[tuple[str, int | None]] = [(request.wide, wanted)]
    if is_alone:  # one unit on each host, so a limit on units is a limit on hosts
        limits = [(kind, most) for kind, most in request.spread or () if kind != "host"]
    places = Places(limits, request.taken if is_alone else (), hosts)
    within_limits = (host for host in fit if places.take(host, 1))
    return islice(within_limits, wanted) if is_alone else within_limits


def _highest(request: Request, allowed: Sequence[Host], wanted: int, hosts: Hosts) -> int:
    """Return the most units that an optimum can place on a host that keeps and pins no more.

    This is the smallest number that leaves room for all wanted units. One more unit on a host then
    costs more than on a host with fewer units, because a step of spreading costs more than balance.
    """
    for highest in range(math.ceil(wanted / max(1, len(allowed))), min(request.count, CROWD)):
        places = Places(request.spread or (), request.taken, hosts)
        if sum(places.take(host, min(highest, host.fits(request.quantum))) for host in allowed) >= wanted:
            return highest
    return request.count


def _balance(host: Host, quantum: Quantum, count: int) -> list[int]:
    """Return the cost of the first, second, … unit on a host, by its load before that unit."""
    cpu, memory = host.used_cpu, host.used_memory
    return [
        round(BALANCE_COST * host.load_with(cpu + quantum.cpu * number, memory + quantum.memory * number))
        for number in range(count)
    ]


def _costs(request: Request, host: Host, kept: int, count: int) -> list[int]:
    """Return the cost of the first, second, … unit of a request on a host."""
    apart = APART_COST if request.beside and host.name not in request.beside else 0
    pinned = request.pinned_on(host.name) if request.pinned else count
    return [
        SPREAD_COST * min(number, CROWD)
        + (0 if number < kept else NEW_COST)
        + (0 if number < pinned else PIN_COST)
        + apart
        for number in range(count)
    ]


def fits(spec: TierSpec, placement: Placement, hosts: Hosts) -> bool:
    """Return whether there is room for an incarnation exactly at a placement, beside all units."""
    are_usable = all(name in hosts and hosts[name].usable for name in placement.hosts)
    return are_usable and not without_room(spec, placement, hosts)
