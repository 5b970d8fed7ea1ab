"""Placement: slots and drivers on hosts, as an integer min-cost flow in which staying is cheaper than moving.

What asks for the same quantum is solved together, the largest quantum first. Within one quantum the result is optimal and stable. The flow
has only the hosts and arcs that an optimum can need (`_candidates`, `_highest`): a slot is placed on ten thousand hosts in milliseconds.
How many workers of a tier may be in one rack or zone are nodes of the flow; who may not be on a host has no arc to it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter

from sluice_ops.model.ids import BATCH, HostName, TierName
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Host, Hosts, RefusedError, at
from sluice_ops.planning.placement.no_room import burst_away, known, name_of, verdict
from sluice_ops.planning.placement.requests import DRIVER, EXTRA, Ask, Places
from sluice_ops.planning.placement.shares import Target

NEW_COST = 100_000
"""For a unit where there was none: above everything that spreading or balancing could save, so that nothing moves for beauty."""
SPREAD_COST = 100
"""For each further unit of one tier on the same host: losing a host should cost a tier as little as can be."""
BALANCE_COST = 90
"""For a full host as against an empty one: below one step of spreading."""
APART_COST = 200
"""For a driver on a host without a worker of its tier: together they are one thing to lose, and one to move when a host is drained."""
CROWD = 64
"""Units of one tier on one host after which spreading counts no more, which keeps the costs below NEW_COST."""


_Arc = tuple[int, int, int, int]
"""From, to, how many units it takes, what each costs."""


@dataclass(frozen=True)
class Placed:
    """Where everything goes, what the hosts then hold, and what people should know."""

    where: Mapping[tuple[str, str], tuple[HostName, ...]]
    hosts: Hosts
    notes: tuple[str, ...]


def place(asks: Iterable[Ask], hosts: Hosts) -> Placed:
    """Place all asks beside what the hosts hold already; RefusedError says what does not fit and why."""
    notes: list[str] = []
    eased = [_ease(ask, hosts, notes) for ask in asks]
    where: dict[tuple[str, str], tuple[HostName, ...]] = {}
    size = _size
    for _, group in groupby(sorted(eased, key=lambda ask: (*size(ask), ask.tenant, ask.part)), key=size):
        alike = [_following(ask, where.get((ask.tenant, "slots"), ())) for ask in group]
        for ask, names in zip(alike, _solve(alike, hosts), strict=True):
            where[ask.tenant, ask.part] = names
            hosts = _hold(hosts, ask, names)
    return Placed(where, hosts, tuple(notes))


def tier_asks(spec: TierSpec, target: Target, now: Placement | None, hosts: Hosts) -> list[Ask]:
    """Say what one incarnation of a tier asks for: its slots, those of a burst, and its driver."""
    slots = () if now is None else now.slots
    beside = tuple(
        name for name in slots if target.extra and name in hosts and hosts[name].matches(target.extra_to)
    )[: target.extra]
    kept = list((Counter(slots) - Counter(beside)).elements())
    driver = Ask(
        spec.name,
        1,
        spec.driver,
        target.to,
        () if now is None else (now.driver,),
        DRIVER,
        separate=target.separate,
    )
    asks = [replace(more_slots(spec, target, target.slots), keep=tuple(kept)), driver]
    if target.extra:
        asks.append(
            replace(more_slots(spec, target, target.extra), to=target.extra_to, keep=beside, part=EXTRA)
        )
    return asks


def more_slots(spec: TierSpec, target: Target, count: int, taken: Iterable[HostName] = ()) -> Ask:
    """Ask for so many workers of a tier beside those that it has."""
    return Ask(
        spec.name,
        count,
        spec.quantum,
        target.to,
        spread=target.spread,
        taken=tuple(taken),
        separate=target.separate,
    )


def place_tier(
    spec: TierSpec, target: Target, now: Placement | None, hosts: Hosts
) -> tuple[Placement, Placed]:
    """Place one incarnation of a tier beside everything that the hosts hold."""
    placed = place(tier_asks(spec, target, now, hosts), hosts)
    return placement_of(spec.name, placed), placed


def placement_of(tier: str, placed: Placed) -> Placement:
    """Return where a tier's parts were placed."""
    (driver,) = placed.where[tier, DRIVER]
    return Placement(
        driver=driver, slots=(*placed.where[tier, "slots"], *placed.where.get((tier, EXTRA), ()))
    )


def _size(ask: Ask) -> tuple[bool, int, float, bool]:
    """Order the asks: workers before drivers, which are placed beside them, the largest first, and a burst after what it counts beside."""
    return (
        ask.part == DRIVER,
        -ask.quantum.memory,
        -ask.quantum.cpu,
        ask.part == EXTRA and ask.spread is not None,
    )


def _following(ask: Ask, slots: tuple[HostName, ...]) -> Ask:
    """Return an ask that knows where the workers of its tier have been placed by now."""
    if ask.part == DRIVER:
        return replace(ask, beside=slots)
    return replace(ask, taken=(*ask.taken, *slots)) if ask.part == EXTRA and ask.spread is not None else ask


def _hold(hosts: Hosts, ask: Ask, names: Sequence[HostName]) -> Hosts:
    tier = None if ask.tenant == BATCH else TierName(ask.tenant)
    return {
        **hosts,
        **{name: hosts[name].holding(ask.quantum, count, tier) for name, count in Counter(names).items()},
    }


def _ease(ask: Ask, hosts: Hosts, notes: list[str]) -> Ask:
    """Loosen a locality that no host can serve now: running elsewhere is better than not running."""
    if ask.to is None or ask.count == 0:
        return ask
    there = at(ask.to)
    if any(host.usable and there(host) for host in hosts.values()):
        return ask
    matching = [host for host in hosts.values() if there(host)]
    if ask.part == EXTRA:
        notes.append(burst_away(ask.tenant, ask.count, ask.to, hosts))
        return replace(ask, count=0)
    if not matching:
        message = f"{name_of(ask)} has to be at {ask.to}, and there is no such host; {known(hosts)}"
        raise RefusedError(message)
    states = listed(f"{host.name} is {host.state}" for host in matching)
    notes.append(
        f"{ask.tenant} has to be at {ask.to}, but {states}: it goes anywhere until it is moved again"
    )
    return replace(ask, to=None)


def _solve(asks: Sequence[Ask], hosts: Hosts) -> list[tuple[HostName, ...]]:
    """Solve one quantum: ask → host → sink, every arc one unit wide; zones and racks that are limited lie in between."""
    quantum = asks[0].quantum
    wanted = sum(ask.count for ask in asks)
    takers = [_candidates(ask, wanted, hosts) for ask in asks]
    if len(asks) == 1 and not asks[0].keep and not asks[0].beside and len(takers[0]) == wanted:
        return [
            tuple(sorted(host.name for host in takers[0]))
        ]  # nothing to weigh: the emptiest hosts, one unit on each
    columns = {
        name: column
        for column, name in enumerate(
            sorted({host.name for taking in takers for host in taking}), start=len(asks)
        )
    }
    sink = len(asks) + len(columns)
    arcs: list[_Arc] = []
    """Those to the hosts first, in the order of the asks."""
    placing: list[tuple[int, HostName]] = []
    """The ask and the host of each of these."""
    around: list[_Arc] = []
    arriving: Counter[HostName] = Counter()
    for row, (ask, taking) in enumerate(zip(asks, takers, strict=True)):
        kept, highest = Counter(ask.keep), _highest(ask, taking, wanted, hosts)
        tails, more = _places(ask, row, taking, hosts, sink + 1 + len(around))
        around += more
        for host in taking:
            count = min(ask.left_on(host), host.fits(quantum), max(kept[host.name], highest))
            costs = _costs(ask, host, kept[host.name], count)
            tail, head = tails.get(host.name, row), columns[host.name]
            arcs.extend((tail, head, 1, cost) for cost in costs)
            placing += [(row, host.name)] * len(costs)
            arriving[host.name] += len(costs)
    for name, most in arriving.items():
        arcs.extend(
            (columns[name], sink, 1, cost)
            for cost in _balance(hosts[name], quantum, min(most, hosts[name].fits(quantum)))
        )
    found: list[list[HostName]] = [[] for _ in asks]
    for arc in _flowing([*arcs, *around], [ask.count for ask in asks], sink):
        if arc < len(placing):
            row, name = placing[arc]
            found[row].append(name)
    for ask, placed in zip(asks, found, strict=True):
        if len(placed) < ask.count:
            raise RefusedError(verdict(ask, len(placed), hosts))
    return [tuple(sorted(placed)) for placed in found]


def _places(
    ask: Ask, row: int, taking: Sequence[Host], hosts: Hosts, node: int
) -> tuple[dict[HostName, int], list[_Arc]]:
    """Return from which node each host is reached, and the arcs to these nodes, the first of which is `node`: as wide as the limits."""
    tails: dict[HostName, int] = {}
    around: list[_Arc] = []
    if ask.spread is None:
        return tails, around
    for kind, most in (("zone", ask.spread.zone), ("rack", ask.spread.rack)):
        if most is None:
            continue
        taken = Counter(hosts[name].within(kind) for name in ask.taken if name in hosts)
        heads: dict[str, int] = {}
        for host in taking:
            place = host.within(kind)
            if place not in heads:
                heads[place] = node + len(around)
                around.append((tails.get(host.name, row), heads[place], max(0, most - taken[place]), 0))
            tails[host.name] = heads[place]
    return tails, around


def _flowing(arcs: Sequence[_Arc], supplies: Sequence[int], sink: int) -> list[int]:
    """Return the arcs that carry something in the cheapest of the largest flows from the first nodes to the sink."""
    if not arcs:
        return []
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow  # noqa: PLC0415 - 55 ms, only the controller plans

    flow = SimpleMinCostFlow()
    for row, supply in enumerate(supplies):
        flow.set_node_supply(row, supply)
    flow.set_node_supply(sink, -sum(supplies))
    numbers = flow.add_arcs_with_capacity_and_unit_cost(*zip(*arcs, strict=True))
    flow.solve_max_flow_with_min_cost()
    return [arc for arc, units in enumerate(flow.flows(numbers)) if units]


def _candidates(ask: Ask, wanted: int, hosts: Hosts) -> list[Host]:
    """Return where an optimum can put an ask: where it is, on the emptiest `wanted` hosts, or on the emptiest that it is to be beside.

    Where racks or zones are limited they are the emptiest that the limits allow. One of so many is left alone by any result that goes
    elsewhere, and taking it instead costs no more; if it is one to be beside it costs less, and then no others are looked at.
    """
    near = [*islice(_fit(ask, _named(ask.beside, hosts)), wanted)]
    first = () if len(near) == wanted else _first(ask, _fit(ask, hosts.values()), wanted, hosts)
    kept = _fit(ask, _named(ask.keep, hosts))
    return [*{host.name: host for host in (*first, *kept, *near)}.values()]


def _named(names: Iterable[HostName], hosts: Hosts) -> list[Host]:
    return [hosts[name] for name in dict.fromkeys(names) if name in hosts]


def _fit(ask: Ask, hosts: Iterable[Host]) -> Iterator[Host]:
    """Yield those of the hosts that may take a unit of an ask, the emptiest first: of ten thousand few are looked at."""
    there = at(ask.to)
    for host in sorted(hosts, key=attrgetter("load")):
        if (
            there(host)
            and host.takes(ask.quantum)
            and host.admits(ask.tenant, ask.separate)
            and ask.left_on(host)
        ):
            yield host


def _first(ask: Ask, fit: Iterator[Host], wanted: int, hosts: Hosts) -> Iterator[Host]:
    """Return the emptiest `wanted` hosts: no more of a limited rack or zone than it may take, or of each of them when others ask too."""
    if ask.wide is None:
        return islice(fit, wanted)
    alone = wanted == ask.count
    limits: Iterable[tuple[str, int | None]] = [(ask.wide, wanted)]
    if alone:
        limits = [
            (kind, most) for kind, most in ask.spread or () if kind != "host"
        ]  # of these one unit on each may be there
    places = Places(limits, ask.taken if alone else (), hosts)
    found = (host for host in fit if places.take(host, 1))
    return islice(found, wanted) if alone else found


def _highest(ask: Ask, taking: Sequence[Host], wanted: int, hosts: Hosts) -> int:
    """Return how many units of an ask an optimum can put on one host, where no more are kept: as few as leave room for all that is wanted.

    Then one more on a host is dearer than on another that has fewer: a step of spreading costs more than a host may be fuller.
    """
    for highest in range(math.ceil(wanted / max(1, len(taking))), min(ask.count, CROWD)):
        places = Places(ask.spread or (), ask.taken, hosts)
        if sum(places.take(host, min(highest, host.fits(ask.quantum))) for host in taking) >= wanted:
            return highest
    return ask.count


def _balance(host: Host, quantum: Quantum, count: int) -> list[int]:
    """Price the first, second, … unit on a host by how full it is then."""
    cpu, memory = host.used_cpu, host.used_memory
    return [
        round(BALANCE_COST * host.load_with(cpu + quantum.cpu * number, memory + quantum.memory * number))
        for number in range(count)
    ]


def _costs(ask: Ask, host: Host, kept: int, count: int) -> list[int]:
    """Price the first, second, … unit of an ask on a host."""
    apart = APART_COST if ask.beside and host.name not in ask.beside else 0
    return [
        SPREAD_COST * min(number, CROWD) + (0 if number < kept else NEW_COST) + apart
        for number in range(count)
    ]


def fits(spec: TierSpec, placement: Placement, hosts: Hosts) -> bool:
    """Tell whether there is room for an incarnation exactly there, beside what the hosts hold."""
    held: dict[HostName, Host] = dict(hosts)
    for name, quantum in (
        (placement.driver, spec.driver),
        *((slot, spec.quantum) for slot in placement.slots),
    ):
        if name not in held or not held[name].usable or held[name].fits(quantum) < 1:
            return False
        held[name] = held[name].holding(quantum)
    return True
