"""The solver leaves parts of its flow out that no optimum needs; the tests compare it with the full
flow, with every host and every arc.
"""

from dataclasses import replace
from itertools import product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.planning.placement import solver
from sluice_ops.planning.placement.cluster import Host, RefusedError
from sluice_ops.planning.placement.requests import DRIVER, Request
from sluice_ops.planning.placement.solver import (
    APART_COST,
    BALANCE_COST,
    CROWD,
    NEW_COST,
    PIN_COST,
    SPREAD_COST,
    place,
)
from sluice_ops.planning.shortage.fitting import _surely_fits
from tests.unit.sluice_ops.planning.clusters import pins, spreads

QUANTUM = Quantum(cpu=1, memory=1024)
NAMES = [f"h{number}" for number in range(7)]


def cost_of_one(request, host, number):
    """Return the cost of one unit of a request on a host that has `number` of its units already."""
    kept_units = request.keep.count(host.name)
    apart = APART_COST if request.beside and host.name not in request.beside else 0
    unpinned = bool(request.pinned) and (
        request.taken.count(host.name) + number >= request.pinned.get(host.name, 0)
    )
    new = number >= kept_units
    return SPREAD_COST * min(number, CROWD) + NEW_COST * new + PIN_COST * unpinned + apart


def balance(host, number):
    return round(
        BALANCE_COST
        * max(
            (host.used_cpu + number) / host.capacity.cpu,
            (host.used_memory + 1024 * number) / host.capacity.memory,
        )
    )


def cheapest(requests, hosts):
    """Return the cost of the full flow, solved by another library; None if not everything fits."""
    graph = nx.MultiDiGraph()
    wanted = sum(request.count for request in requests)
    graph.add_node("sink", demand=wanted)
    for row, request in enumerate(requests):
        graph.add_node(row, demand=-request.count)
    for host in hosts.values():
        for number in range(host.fits(QUANTUM) if host.usable else 0):
            graph.add_edge(host.name, "sink", capacity=1, weight=balance(host, number))
    for (row, request), host in product(enumerate(requests), hosts.values()):
        if (
            host.usable
            and host.matches(request.to)
            and (host.only is None or request.tenant in host.only)
            and not request.separate & {*host.tiers}
        ):
            spread = dict(request.spread or ())
            zone, rack, beside = (
                (row, host.zone),
                (row, host.zone, host.rack or host.name),
                (row, host.name, "on"),
            )
            for near, far, kind in ((row, zone, "zone"), (zone, rack, "rack"), (rack, beside, "host")):
                taken = sum(
                    near_to(hosts[name], kind) == near_to(host, kind)
                    for name in request.taken
                    if name in hosts
                )
                most = spread.get(kind)
                graph.add_edge(
                    near, far, key=kind, capacity=wanted if most is None else max(0, most - taken), weight=0
                )
            for number in range(min(request.count, host.fits(QUANTUM))):
                graph.add_edge(beside, host.name, capacity=1, weight=cost_of_one(request, host, number))
    try:
        return nx.min_cost_flow_cost(graph)
    except nx.NetworkXUnfeasible:
        return None


def near_to(host, kind):
    return {"host": host.name, "rack": (host.zone, host.rack or host.name), "zone": host.zone}[kind]


def price(requests, hosts, placements):
    total, placed = 0, dict.fromkeys(hosts, 0)
    for request in requests:
        names = placements[request.tenant, request.part]
        for name in set(names):
            assert hosts[name].usable
            assert hosts[name].matches(request.to)
            total += sum(cost_of_one(request, hosts[name], number) for number in range(names.count(name)))
            placed[name] += names.count(name)
    for name, count in placed.items():
        assert count <= hosts[name].fits(QUANTUM)
        total += sum(balance(hosts[name], number) for number in range(count))
    return total


@st.composite
def hosts_of(draw):
    return {
        name: Host(
            name,
            draw(st.sampled_from(["onprem", "ec2"])),
            draw(st.sampled_from([(), ("fast",)])),
            Capacity(cpu=8, memory=8192),
            draw(st.sampled_from([HostState.UP] * 5 + [HostState.CORDONED])),
            used,
            used * 1024,
            draw(st.sampled_from(["", "r1", "r2"])),
            draw(st.sampled_from([(), (), ("other",)])),
            draw(st.sampled_from([None, None, frozenset({"t0"})])),
        )
        for name in NAMES[: draw(st.integers(2, 7))]
        for used in [draw(st.integers(0, 7))]
    }


@st.composite
def requests_of(draw, part="slots"):
    names = st.sampled_from(NAMES)
    return [
        Request(
            f"t{number}",
            1 if part == DRIVER else draw(st.integers(1, 5)),
            QUANTUM,
            draw(st.sampled_from([None, None, "label:fast", "zone:ec2"])),
            tuple(draw(st.lists(names, max_size=4))),
            part,
            tuple(draw(st.lists(names, max_size=4))) if part == DRIVER else (),
            None if part == DRIVER else draw(st.none() | spreads),
            () if part == DRIVER else tuple(draw(st.lists(names, max_size=2))),
            draw(st.sampled_from([frozenset(), frozenset({"other"})])),
            {} if part == DRIVER else draw(st.just({}) | pins),
        )
        for number in range(draw(st.integers(1, 3)))
    ]


def compare_with_full_flow(requests, hosts):
    """Compare the solver with the full flow: both refuse, or both have the same cost."""
    expected = cheapest(requests, hosts)
    try:
        solved = solver._solve(requests, hosts)
    except RefusedError:
        assert expected is None
        return
    assert expected is not None
    assert (
        price(
            requests,
            hosts,
            {(request.tenant, request.part): names for request, names in zip(requests, solved, strict=True)},
        )
        == expected
    )


@pytest.mark.parametrize("part", ["slots", DRIVER])
@settings(max_examples=150)
@given(st.data())
def test_the_reduced_flow_has_the_cost_of_the_full_flow(part, data):
    hosts, requests = data.draw(hosts_of()), data.draw(requests_of(part))
    compare_with_full_flow(requests, hosts)


@st.composite
def spread_out(draw):
    """Draw one tier whose workers must be in several racks or zones, and hosts with room."""
    names = [f"h{number}" for number in range(draw(st.integers(4, 10)))]
    zones, racks, loads = (
        st.sampled_from(["onprem", "annex"]),
        st.sampled_from(["r1", "r2", "r3"]),
        st.integers(0, 6),
    )
    hosts = {}
    for name in names:
        used = draw(loads)
        hosts[name] = Host(
            name, draw(zones), (), Capacity(cpu=8, memory=8192), HostState.UP, used, used * 1024, draw(racks)
        )
    taken = tuple(draw(st.lists(st.sampled_from(names), max_size=3)))
    keep = tuple(draw(st.lists(st.sampled_from(names), max_size=2)))
    limits = draw(spreads.filter(lambda limits: limits.rack is not None or limits.zone is not None))
    request = Request("t0", draw(st.integers(1, 3)), QUANTUM, None, keep, spread=limits, taken=taken)
    return [replace(request, pinned=draw(st.just({}) | pins))], hosts


@settings(max_examples=300)
@given(spread_out())
def test_limits_on_racks_and_zones_have_the_cost_of_the_full_flow(drawn):
    compare_with_full_flow(*drawn)


@settings(max_examples=100)
@given(hosts_of(), requests_of(), st.permutations(range(3)), st.booleans())
def test_requests_that_surely_fit_are_placed_in_any_order(hosts, requests, order, apart):
    names = {request.tenant for request in requests}
    requests = [
        replace(request, keep=(), separate=request.separate | (names - {request.tenant} if apart else set()))
        for request in requests
    ]
    if _surely_fits(requests, hosts):
        for number in order:
            for request in requests[number : number + 1]:
                hosts = place([request], hosts).hosts
