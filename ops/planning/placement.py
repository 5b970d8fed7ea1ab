"""Placement: slots and drivers on hosts, as an integer min-cost flow in which staying is cheaper than moving.

What asks for the same quantum is solved together, the largest quantum first. Within one quantum the result is optimal and stable. The flow
has only the hosts and arcs that an optimum can need (`_candidates`, `_widest`): a slot is placed on ten thousand hosts in milliseconds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter

from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from ops.model.ids import BATCH, HostName
from ops.model.incarnation import Placement
from ops.model.resources import Quantum
from ops.model.sentence import listed
from ops.model.tier import TierSpec
from ops.planning.cluster import Host, Hosts, RefusedError
from ops.planning.shares import Target

NEW_COST = 100_000
"""For a unit where there was none: above everything that spreading or balancing could save, so that nothing moves for beauty."""
SPREAD_COST = 100
"""For each further unit of one tier on the same host: losing a host should cost a tier as little as can be."""
BALANCE_COST = 90
"""For a full host as against an empty one: below one step of spreading."""
DRIVER = "driver"
APART_COST = 200
"""For a driver on a host without a worker of its tier: together they are one thing to lose, and one to move when a host is drained."""
CROWD = 64
"""Units of one tier on one host after which spreading counts no more, which keeps the costs below NEW_COST."""


@dataclass(frozen=True)
class Ask:
    """So many units of one size for one tenant, and where they may be and are."""

    tenant: str
    count: int
    quantum: Quantum
    to: str | None = None
    keep: tuple[HostName, ...] = ()
    part: str = "slots"
    """`slots`, `extra` or `driver`: asks of one tenant are told apart by it."""
    beside: tuple[HostName, ...] = ()
    """For a driver: where its tier's workers are placed."""


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
        alike = [replace(ask, beside=where.get((ask.tenant, "slots"), ())) if ask.part == DRIVER else ask for ask in group]
        for ask, names in zip(alike, _solve(alike, hosts), strict=True):
            where[ask.tenant, ask.part] = names
            hosts = _hold(hosts, ask.quantum, names)
    return Placed(where, hosts, tuple(notes))


def tier_asks(spec: TierSpec, target: Target, now: Placement | None, hosts: Hosts) -> list[Ask]:
    """Say what one incarnation of a tier asks for: its slots, those of a burst, and its driver."""
    slots = () if now is None else now.slots
    beside = tuple(name for name in slots if target.extra and name in hosts and hosts[name].matches(target.extra_to))[: target.extra]
    kept = list((Counter(slots) - Counter(beside)).elements())
    asks = [
        Ask(spec.name, target.slots, spec.quantum, target.to, tuple(kept)),
        Ask(spec.name, 1, spec.driver, target.to, () if now is None else (now.driver,), DRIVER),
    ]
    if target.extra:
        asks.append(Ask(spec.name, target.extra, spec.quantum, target.extra_to, beside, "extra"))
    return asks


def place_tier(spec: TierSpec, target: Target, now: Placement | None, hosts: Hosts) -> tuple[Placement, Placed]:
    """Place one incarnation of a tier beside everything that the hosts hold."""
    placed = place(tier_asks(spec, target, now, hosts), hosts)
    return placement_of(spec.name, placed), placed


def placement_of(tier: str, placed: Placed) -> Placement:
    """Return where a tier's parts were placed."""
    (driver,) = placed.where[tier, DRIVER]
    return Placement(driver=driver, slots=(*placed.where[tier, "slots"], *placed.where.get((tier, "extra"), ())))


def _size(ask: Ask) -> tuple[bool, int, float]:
    """Order the asks: workers before drivers, which are placed beside them, and the largest first."""
    return (ask.part == DRIVER, -ask.quantum.memory, -ask.quantum.cpu)


def _hold(hosts: Hosts, quantum: Quantum, names: Sequence[HostName]) -> Hosts:
    return {**hosts, **{name: hosts[name].holding(quantum, count) for name, count in Counter(names).items()}}


def _ease(ask: Ask, hosts: Hosts, notes: list[str]) -> Ask:
    """Loosen a locality that no host can serve now: running elsewhere is better than not running."""
    if ask.to is None or ask.count == 0:
        return ask
    matching = [host for host in hosts.values() if host.matches(ask.to)]
    if any(host.usable for host in matching):
        return ask
    if ask.part == "extra":
        notes.append(f"{ask.tenant} goes without its {ask.count} more at {ask.to}: no host there is up")
        return replace(ask, count=0)
    if not matching:
        message = f"{_name(ask)} has to be at {ask.to}, and there is no such host; {_places(hosts)}"
        raise RefusedError(message)
    states = listed(f"{host.name} is {host.state}" for host in matching)
    notes.append(f"{ask.tenant} has to be at {ask.to}, but {states}: it goes anywhere until it is moved again")
    return replace(ask, to=None)


def _solve(asks: Sequence[Ask], hosts: Hosts) -> list[tuple[HostName, ...]]:
    """Solve one quantum: ask → host → sink, every arc one unit wide and with its cost."""
    quantum = asks[0].quantum
    roomy = [host for host in hosts.values() if host.takes(quantum)]
    wanted = sum(ask.count for ask in asks)
    takers = [_candidates(ask, roomy, wanted) for ask in asks]
    if len(asks) == 1 and not asks[0].keep and not asks[0].beside and len(takers[0]) == wanted:
        return [tuple(sorted(host.name for host in takers[0]))]  # nothing to weigh: the emptiest hosts, one unit on each
    columns = {name: column for column, name in enumerate(sorted({host.name for taking in takers for host in taking}), start=len(asks))}
    sink = len(asks) + len(columns)
    arcs: list[tuple[int, int, int]] = []
    """From, to, cost: those to the hosts first, in the order of the asks."""
    arriving: Counter[HostName] = Counter()
    for row, (ask, taking) in enumerate(zip(asks, takers, strict=True)):
        kept = Counter(ask.keep)
        for host in taking:
            costs = _costs(ask, host, kept[host.name], _widest(ask, host, kept[host.name], len(taking) >= wanted))
            arcs.extend((row, columns[host.name], cost) for cost in costs)
            arriving[host.name] += len(costs)
    placing = len(arcs)
    for name, most in arriving.items():
        arcs.extend((columns[name], sink, cost) for cost in _balance(hosts[name], quantum, min(most, hosts[name].fits(quantum))))
    found: list[list[HostName]] = [[] for _ in asks]
    names = dict(zip(columns.values(), columns, strict=True))
    for arc in _flowing(arcs, [*(ask.count for ask in asks)], sink):
        if arc < placing:
            row, column, _ = arcs[arc]
            found[row].append(names[column])
    for ask, placed in zip(asks, found, strict=True):
        if len(placed) < ask.count:
            raise RefusedError(_verdict(ask, len(placed), hosts))
    return [tuple(sorted(placed)) for placed in found]


def _flowing(arcs: Sequence[tuple[int, int, int]], supplies: Sequence[int], sink: int) -> list[int]:
    """Return the arcs that carry a unit in the cheapest of the largest flows from the first nodes to the sink."""
    if not arcs:
        return []
    flow = SimpleMinCostFlow()
    for row, supply in enumerate(supplies):
        flow.set_node_supply(row, supply)
    flow.set_node_supply(sink, -sum(supplies))
    tails, heads, costs = zip(*arcs, strict=True)
    numbers = flow.add_arcs_with_capacity_and_unit_cost(tails, heads, [1] * len(arcs), costs)
    flow.solve_max_flow_with_min_cost()
    return [arc for arc, units in enumerate(flow.flows(numbers)) if units]


def _candidates(ask: Ask, roomy: Sequence[Host], wanted: int) -> list[Host]:
    """Return where an optimum can put an ask: where it is, on the emptiest `wanted` hosts, or on the emptiest that it is to be beside.

    One of so many is left alone by any result that goes elsewhere, and taking it instead costs no more.
    """
    matching = sorted((host for host in roomy if host.matches(ask.to)), key=attrgetter("load"))
    found = {host.name: host for host in matching[:wanted]}
    keep, beside = {*ask.keep}, {*ask.beside}
    found |= {host.name: host for host in matching if host.name in keep} if keep else {}
    found |= {host.name: host for host in islice((host for host in matching if host.name in beside), wanted)} if beside else {}
    return list(found.values())


def _widest(ask: Ask, host: Host, kept: int, plenty: bool) -> int:  # noqa: FBT001 - as it was found
    """Return how many units of an ask an optimum can put on a host: with hosts in plenty a second new one is cheaper anywhere else."""
    return min(ask.count, host.fits(ask.quantum), max(kept, 1) if plenty else ask.count)


def _balance(host: Host, quantum: Quantum, count: int) -> list[int]:
    """Price the first, second, … unit on a host by how full it is then."""
    cpu, memory = host.used_cpu, host.used_memory
    return [round(BALANCE_COST * host.load_with(cpu + quantum.cpu * number, memory + quantum.memory * number)) for number in range(count)]


def _costs(ask: Ask, host: Host, kept: int, count: int) -> list[int]:
    """Price the first, second, … unit of an ask on a host."""
    apart = APART_COST if ask.beside and host.name not in ask.beside else 0
    return [SPREAD_COST * min(number, CROWD) + (0 if number < kept else NEW_COST) + apart for number in range(count)]


def _name(ask: Ask) -> str:
    if ask.tenant == BATCH:
        return "batch"
    return f'tier "{ask.tenant}"' if ask.part != DRIVER else f'the driver of tier "{ask.tenant}"'


def _places(hosts: Hosts) -> str:
    zones = sorted({host.zone for host in hosts.values()})
    labels = sorted({label for host in hosts.values() for label in host.labels})
    return f"hosts: {listed(sorted(hosts))}; zones: {', '.join(zones)}; labels: {', '.join(labels) or 'none'}"


def _verdict(ask: Ask, found: int, hosts: Hosts) -> str:
    """Say why an ask does not fit, with the numbers and what to do about it."""
    where = "" if ask.to is None else f" at {ask.to}"
    usable = [host for _, host in sorted(hosts.items()) if host.matches(ask.to) and host.usable]
    key = "driver" if ask.part == DRIVER else "quantum"
    if not usable:
        states = listed(f"{host.name} is {host.state}" for _, host in sorted(hosts.items()) if host.matches(ask.to))
        return f"{_name(ask)}: no host{where} can take it ({states or 'there is none'}); return or add one"
    largest = max(usable, key=lambda host: (host.capacity.cpu, host.capacity.memory))
    if all(host.capacity.cpu < ask.quantum.cpu for host in usable):
        return (
            f"{_name(ask)}: Q asks {ask.quantum.cpu:g} cpu, host {largest.name} has {largest.capacity.cpu:g}; "
            f"give {largest.name} more or lower {key}.cpu"
        )
    if all(host.capacity.memory < ask.quantum.memory for host in usable):
        return (
            f"{_name(ask)}: Q asks {ask.quantum.memory} MiB, host {largest.name} has {largest.capacity.memory}; "
            f"give {largest.name} more or lower {key}.memory"
        )
    free = listed(f"{host.name} {host.free_cpu:g} cpu and {host.free_memory} MiB" for host in usable)
    return (
        f"{_name(ask)}: {ask.count - found} of {ask.count} ({ask.quantum.cpu:g} cpu, {ask.quantum.memory} MiB each) find no room{where}; "
        f"free are {free}; return or add a host, or lower a share"
    )


def fits(spec: TierSpec, placement: Placement, hosts: Hosts) -> bool:
    """Tell whether an incarnation can be put exactly there, beside what the hosts hold."""
    held: dict[HostName, Host] = dict(hosts)
    for name, quantum in ((placement.driver, spec.driver), *((slot, spec.quantum) for slot in placement.slots)):
        if name not in held or not held[name].usable or held[name].fits(quantum) < 1:
            return False
        held[name] = held[name].holding(quantum)
    return True
