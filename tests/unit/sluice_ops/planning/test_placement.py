"""Placement leaves out of its flow what no optimum needs: held against the same flow with every host and every arc."""

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
from sluice_ops.planning.placement.solver import APART_COST, BALANCE_COST, CROWD, NEW_COST, SPREAD_COST, place
from sluice_ops.planning.shortage.fitting import _surely_fits
from tests.unit.sluice_ops.planning.clusters import spreads

QUANTUM = Quantum(cpu=1, memory=1024)
NAMES = [f"h{number}" for number in range(7)]


def cost_of_one(ask, host, number):
    """Price a unit of an ask on a host that has `number` of it already."""
    kept = ask.keep.count(host.name)
    apart = APART_COST if ask.beside and host.name not in ask.beside else 0
    return SPREAD_COST * min(number, CROWD) + (0 if number < kept else NEW_COST) + apart


def balance(host, number):
    return round(
        BALANCE_COST
        * max(
            (host.used_cpu + number) / host.capacity.cpu,
            (host.used_memory + 1024 * number) / host.capacity.memory,
        )
    )


def cheapest(asks, hosts):
    """Solve the whole flow by another library; None where not everything fits."""
    graph = nx.MultiDiGraph()
    wanted = sum(ask.count for ask in asks)
    graph.add_node("sink", demand=wanted)
    for row, ask in enumerate(asks):
        graph.add_node(row, demand=-ask.count)
    for host in hosts.values():
        for number in range(host.fits(QUANTUM) if host.usable else 0):
            graph.add_edge(host.name, "sink", capacity=1, weight=balance(host, number))
    for (row, ask), host in product(enumerate(asks), hosts.values()):
        if (
            host.usable
            and host.matches(ask.to)
            and (host.only is None or ask.tenant in host.only)
            and not ask.separate & {*host.tiers}
        ):
            spread = dict(ask.spread or ())
            zone, rack, beside = (
                (row, host.zone),
                (row, host.zone, host.rack or host.name),
                (row, host.name, "on"),
            )
            for near, far, kind in ((row, zone, "zone"), (zone, rack, "rack"), (rack, beside, "host")):
                taken = sum(
                    near_to(hosts[name], kind) == near_to(host, kind) for name in ask.taken if name in hosts
                )
                most = spread.get(kind)
                graph.add_edge(
                    near, far, key=kind, capacity=wanted if most is None else max(0, most - taken), weight=0
                )
            for number in range(min(ask.count, host.fits(QUANTUM))):
                graph.add_edge(beside, host.name, capacity=1, weight=cost_of_one(ask, host, number))
    try:
        return nx.min_cost_flow_cost(graph)
    except nx.NetworkXUnfeasible:
        return None


def near_to(host, kind):
    return {"host": host.name, "rack": (host.zone, host.rack or host.name), "zone": host.zone}[kind]


def price(asks, hosts, found):
    total, placed = 0, dict.fromkeys(hosts, 0)
    for ask in asks:
        names = found[ask.tenant, ask.part]
        for name in set(names):
            assert hosts[name].usable
            assert hosts[name].matches(ask.to)
            total += sum(cost_of_one(ask, hosts[name], number) for number in range(names.count(name)))
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
def asks_of(draw, part="slots"):
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
        )
        for number in range(draw(st.integers(1, 3)))
    ]


def agrees(asks, hosts):
    """Hold a placement against the whole flow: refused both, or at the same price."""
    expected = cheapest(asks, hosts)
    try:
        solved = solver._solve(asks, hosts)
    except RefusedError:
        assert expected is None
        return
    assert expected is not None
    assert (
        price(asks, hosts, {(ask.tenant, ask.part): names for ask, names in zip(asks, solved, strict=True)})
        == expected
    )


@pytest.mark.parametrize("part", ["slots", DRIVER])
@settings(max_examples=150)
@given(st.data())
def test_what_is_left_out_makes_no_placement_dearer(part, data):
    hosts, asks = data.draw(hosts_of()), data.draw(asks_of(part))
    agrees(asks, hosts)


@st.composite
def spread_out(draw):
    """Draw one tier whose workers have to be in several racks or zones, on hosts that have room."""
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
    return [Request("t0", draw(st.integers(1, 3)), QUANTUM, None, keep, spread=limits, taken=taken)], hosts


@settings(max_examples=300)
@given(spread_out())
def test_limits_on_racks_and_zones_cost_no_more_than_they_must(drawn):
    agrees(*drawn)


@settings(max_examples=100)
@given(hosts_of(), asks_of(), st.permutations(range(3)), st.booleans())
def test_what_surely_fits_at_a_glance_fits_in_any_order(hosts, asks, order, apart):
    names = {ask.tenant for ask in asks}
    asks = [
        replace(ask, keep=(), separate=ask.separate | (names - {ask.tenant} if apart else set()))
        for ask in asks
    ]
    if _surely_fits(asks, hosts):
        for number in order:
            for ask in asks[number : number + 1]:
                hosts = place([ask], hosts).hosts
