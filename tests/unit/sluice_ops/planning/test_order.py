"""Tiers with few possible places choose first, so a change is not refused if some order of tiers
fits.
"""

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import host_of, spec_of

DRAIN = ChangeSpec(kind="drain", host="h0")


def full(places: list[set[int]], rooms: list[int]) -> Cluster:
    """Return a cluster in which every tier is on h0, may go to some other hosts, and each of these
    has room for the given number of tiers.
    """
    names = [f"t{number}" for number in range(len(places))]
    hosts = {"h0": host_of("h0", cpu=1.5 * len(places), memory=1536 * len(places), labels=names)}
    for number, room in enumerate(rooms, start=1):
        labels = tuple(name for name, may in zip(names, places, strict=True) if number in may)
        hosts[f"h{number}"] = host_of(f"h{number}", cpu=1.5 * room, memory=1536 * room, labels=labels)
    tiers = {
        name: TierNow(spec_of(name, distance=number), Placement(driver="h0", slots=("h0",)))
        for number, name in enumerate(names)
    }
    for tier in tiers.values():
        hosts = holding(hosts, tier.spec, tier.placement)
    shares = {name: Share(minimum=1, target=1, maximum=4) for name in names}
    return Cluster(
        hosts,
        tiers,
        (),
        Rules(partitions=8, shares=shares, locality={name: f"label:{name}" for name in names}),
    )


def fits(places: list[set[int]], rooms: list[int]) -> bool:
    """Return whether another solver finds a place for every tier."""
    graph = nx.DiGraph()
    for tier, may in enumerate(places):
        graph.add_edge("from", ("tier", tier), capacity=1)
        for host in may:
            graph.add_edge(("tier", tier), ("host", host), capacity=1)
    for host, room in enumerate(rooms, start=1):
        graph.add_edge(("host", host), "to", capacity=room)
    return len(places) == nx.maximum_flow_value(graph, "from", "to")


def test_a_tier_with_one_possible_place_gets_it():
    cluster = full([{1, 2}, {1}], [1, 1])
    planned = plan(DRAIN, cluster)
    assert {move.tier: move.after.hosts for move in planned.moves} == {"t0": {"h2"}, "t1": {"h1"}}
    assert [move.tier for move in planned.moves] == ["t0", "t1"], (
        "the tiers are still handed over in order, nearest the end first"
    )
    assert violations(planned, DRAIN, aftermath(DRAIN, cluster)) == []


@st.composite
def tight(draw):
    """Draw the possible hosts of each tier, and the number of tiers that each host takes."""
    rooms = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    hosts = st.sets(st.integers(1, len(rooms)), min_size=1)
    return draw(st.lists(hosts, min_size=1, max_size=4)), rooms


@settings(max_examples=150)
@given(tight())
def test_a_drain_goes_through_wherever_another_solver_finds_room(drawn):
    places, rooms = drawn
    if not fits(places, rooms):
        return
    planned = plan(DRAIN, full(places, rooms))
    assert len(planned.moves) == len(places)
