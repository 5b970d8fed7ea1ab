"""Rebalancing: the fewest moves of single workers that bring every host below its limit."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, WorkerMove
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Share
from sluice_ops.model.spread import Spread
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.rebalance import ABOVE_MEAN, IDLE, rebalancing
from tests.unit.sluice_ops.planning.clusters import host_of, pins, spec_of

REBALANCE = ChangeSpec(kind="rebalance")
BIG = 1 << 14


def cluster_of(
    slots, busy, *, hosts=("h1", "h2", "h3"), cpu=8.0, rules=None, busy_hosts=(), drivers=None, **quanta
):
    """Return a cluster whose drivers are on `z`, without room for a worker, or on `drivers`."""
    named = {name: host_of(name, cpu=cpu, memory=1 << 20) for name in hosts}
    named["z"] = host_of("z", cpu=8.0, memory=BIG - 1)
    shares = {name: Share(minimum=1, target=len(places), maximum=8) for name, places in slots.items()}
    all_rules = replace(rules or Rules(), shares=shares, partitions=16)
    tiers = {}
    for distance, (name, places) in enumerate(slots.items()):
        spec = spec_of(
            name, distance=distance, quantum=quanta.get(name, Quantum(cpu=1, memory=BIG, threads=4))
        )
        placement = Placement(driver=(drivers or {}).get(name, "z"), slots=tuple(places))
        named = holding(named, spec, placement)
        tiers[name] = TierNow(spec, placement)
    return Cluster(named, tiers, (), all_rules, busy=busy, busy_hosts=frozenset(busy_hosts))


def planned(cluster):
    """Return the completed change, and its plan, which the independent checker accepts."""
    spec = KINDS["rebalance"].complete(REBALANCE, None, cluster)
    result = plan(spec, cluster)
    assert not violations(result, spec, aftermath(spec, cluster))
    return spec, result


def after(cluster, moves):
    """Return the cluster after these moves of single workers."""
    hosts, tiers = cluster.hosts, dict(cluster.tiers)
    for name, tier in cluster.tiers.items():
        to = {move.worker: move.to for move in moves if move.tier == name}
        slots = tuple(to.get(number, host) for number, host in enumerate(tier.placement.slots))
        tiers[name] = replace(tier, placement=tier.placement.model_copy(update={"slots": slots}))
        hosts = holding(holding(hosts, tier.spec, tier.placement, -1), tier.spec, tiers[name].placement)
    return replace(cluster, hosts=hosts, tiers=tiers)


def loads(cluster, others=None):
    """Return each host's load; `others` is the load of other programs."""
    result = dict.fromkeys(cluster.hosts, 0.0) | (others or {})
    for name, tier in cluster.tiers.items():
        for host in tier.placement.slots:
            part = cluster.busy.get(name, 0.0) * tier.spec.quantum.cpu
            result[host] += part / cluster.hosts[host].capacity.cpu
    return result


def others_of(cluster):
    own = loads(cluster)
    return {name: max(0.0, 1.0 - own[name]) for name in cluster.busy_hosts}


def limit_of(cluster):
    now = loads(cluster, others_of(cluster))
    cores = {name: host.capacity.cpu for name, host in cluster.hosts.items()}
    return max(IDLE, sum(now[name] * cores[name] for name in cores) / sum(cores.values()) + ABOVE_MEAN)


def test_a_worker_leaves_the_full_host_for_the_emptiest():
    big = Quantum(cpu=2, memory=BIG, threads=4)
    cluster = cluster_of(
        {"a": ("h1",), "b": ("h1",), "c": ("h2",)}, dict.fromkeys("abc", 0.9), a=big, b=big, c=big
    )
    spec, result = planned(cluster)
    assert [(move.worker, move.to) for move in spec.moving] == [(0, "h3")]
    assert result.notes == ("worker 0 of a moves from h1 to h3", "load: h1 45% → 22%, h3 0% → 22%")
    assert result.predicted_seconds > 0


def test_even_loads_move_nothing_and_the_plan_says_the_numbers():
    cluster = cluster_of({"a": ("h1", "h2")}, {"a": 0.8})
    spec, result = planned(cluster)
    assert not spec.moving
    assert not result.moves
    assert result.notes == (
        "no host is above 30%; load: h1 10%, h2 10%, h3 0%, z 0%",
        "nothing has to move",
    )


def test_without_measured_loads_nothing_is_planned():
    with pytest.raises(RefusedError, match="no load is known yet, so nothing can be rebalanced"):
        plan(REBALANCE, cluster_of({"a": ("h1",)}, {}))


def test_a_tier_of_unknown_load_is_told_and_stays():
    cluster = cluster_of({"a": ("h1",), "b": ("h1",)}, {"a": 0.1})
    _, result = planned(cluster)
    assert result.notes[0] == "the load of b is not known yet, and counts as none"


FULL = {"a": ("h1",) * 2, "b": ("h1",) * 2}


def test_no_worker_moves_onto_a_busy_host():
    cluster = cluster_of(FULL, {"a": 1.0, "b": 1.0}, busy_hosts=("h2",))
    spec, _ = planned(cluster)
    assert {move.to for move in spec.moving} == {"h3"}


def test_workers_leave_a_host_that_other_programs_keep_busy():
    cluster = cluster_of({"a": ("h1",)}, {"a": 0.5}, busy_hosts=("h1",))
    spec, _ = planned(cluster)
    assert [move.to for move in spec.moving] == ["h2"]


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        (Rules(), {"h2", "h3"}),
        (Rules(locality={"a": "h1", "b": "h1"}), set()),
        (Rules(dedicated={"h2": frozenset({"c"})}), {"h3"}),
        (Rules(spread={"a": Spread(zone=2), "b": Spread(zone=2)}), {"h2", "h3"}),
    ],
)
def test_moves_keep_the_rules_of_the_site_file(rules, allowed):
    cluster = cluster_of(FULL, {"a": 1.0, "b": 1.0}, rules=rules)
    cluster = cluster.with_hosts(
        {name: replace(host, only=rules.only_on(host)) for name, host in cluster.hosts.items()}
    )
    found = rebalancing(cluster)
    assert {move.to for move in found} <= allowed
    assert bool(found) is bool(allowed)


def test_separate_tiers_stay_apart():
    rules = Rules(separate=(frozenset({"a", "c"}), frozenset({"b", "c"})))
    busy = {"a": 1.0, "b": 1.0, "c": 0.0}
    cluster = cluster_of({**FULL, "c": ("h2",)}, busy, rules=rules, drivers={"c": "h2"})
    assert {move.to for move in planned(cluster)[0].moving} == {"h3"}


@pytest.mark.parametrize("state", [HostState.CORDONED, HostState.DRAINED, HostState.LOST])
def test_no_worker_moves_to_a_host_that_takes_nothing_new(state):
    cluster = cluster_of(FULL, {"a": 1.0, "b": 1.0}).with_state("h2", state)
    assert {move.to for move in planned(cluster)[0].moving} == {"h3"}


def test_without_room_beside_the_running_workers_nothing_moves():
    cluster = cluster_of(FULL, {"a": 1.0, "b": 1.0})
    cluster = cluster.with_hosts({name: replace(host, used_cpu=8.0) for name, host in cluster.hosts.items()})
    spec, result = planned(cluster)
    assert not spec.moving
    assert "no move of a worker brings the hosts above 30% nearer to that limit" in result.notes[0]


def test_a_plan_that_moves_another_worker_is_refused():
    cluster = cluster_of(FULL, {"a": 1.0, "b": 1.0})
    first, other = (
        REBALANCE.model_copy(update={"moving": (WorkerMove(tier="a", worker=worker, to="h2"),)})
        for worker in (0, 1)
    )
    assert not violations(plan(first, cluster), first, cluster)
    assert "a would move more than its worker 0" in violations(plan(other, cluster), first, cluster)


@st.composite
def uneven(draw, *, tiers=3):
    """Draw a cluster with workers anywhere, and room for every handover."""
    hosts = [f"h{number}" for number in range(1, draw(st.integers(2, 4)) + 1)]
    names = [f"t{number}" for number in range(draw(st.integers(1, tiers)))]
    slots = {name: tuple(draw(st.lists(st.sampled_from(hosts), min_size=1, max_size=3))) for name in names}
    quanta = {
        name: Quantum(cpu=draw(st.sampled_from([4.0, 8.0, 16.0])), memory=BIG, threads=16) for name in names
    }
    busy = {name: draw(st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])) for name in names}
    busy_hosts = draw(st.lists(st.sampled_from(hosts), max_size=1))
    cores = 2 * sum(len(places) * quanta[name].cpu for name, places in slots.items())
    rules = Rules(pinned=draw(st.dictionaries(st.sampled_from(names), pins, max_size=2)))
    return cluster_of(slots, busy, hosts=hosts, cpu=cores, rules=rules, busy_hosts=busy_hosts, **quanta)


def drifted(cluster):
    """Return the tiers that a repair would move."""
    return {move.tier for move in plan(ChangeSpec(kind="repair"), cluster).moves}


def pinned_workers(cluster):
    """Return how many pinned workers are on their hosts, by tier and host."""
    slots = {name: tier.placement.slots for name, tier in cluster.tiers.items()}
    return Counter(
        {
            (name, host): min(count, slots[name].count(host))
            for name, pins in cluster.rules.pinned.items()
            for host, count in pins.items()
        }
    )


@settings(max_examples=150, deadline=None)
@given(uneven(tiers=5))
def test_the_highest_load_never_rises_and_a_second_rebalance_does_nothing(cluster):
    spec, result = planned(cluster)
    others = others_of(cluster)
    end = after(cluster, spec.moving)
    before, then = loads(cluster, others), loads(end, others)
    assert max(then.values()) <= max(before.values()) + 1e-9
    for move in spec.moving:
        assert then[move.to] < max(before.values())
    assert pinned_workers(end) >= pinned_workers(cluster)
    moving = {move.tier for move in spec.moving}
    assert {move.tier for move in result.moves} == moving
    assert drifted(end) & moving <= drifted(cluster)
    if not cluster.busy_hosts:
        assert not rebalancing(end)


def is_level(cluster, moves):
    """Return whether every host is at most at its limit after these moves."""
    others, limit = others_of(cluster), limit_of(cluster)
    then = loads(after(cluster, moves), others)
    return all(load <= max(limit, others.get(name, 0.0)) + 1e-6 for name, load in then.items())


def is_allowed(cluster, moves):
    """Return whether the change finds room, and no host gets more workers of a tier."""
    spec = REBALANCE.model_copy(update={"moving": tuple(moves)})
    try:
        plan(spec, cluster)
    except RefusedError:
        return False
    most = lambda tier: max(Counter(tier.placement.slots).values())
    then = after(cluster, moves).tiers
    return all(most(then[name]) <= most(tier) for name, tier in cluster.tiers.items())


@settings(max_examples=60, deadline=None)
@given(uneven())
def test_no_fewer_moves_reach_the_limit(cluster):
    found = rebalancing(cluster)
    workers = [
        (name, number, host)
        for name, tier in cluster.tiers.items()
        for number, host in enumerate(tier.placement.slots)
    ]
    options = [
        WorkerMove(tier=name, worker=number, to=to)
        for (name, number, host), to in product(workers, [*cluster.hosts])
        if to not in {host, "z"}
    ]
    fewest = next(
        (
            count
            for count in range(4)
            for moves in combinations(options, count)
            if len({(move.tier, move.worker) for move in moves}) == count
            and is_level(cluster, moves)
            and is_allowed(cluster, moves)
        ),
        None,
    )
    if fewest is not None:
        assert is_level(cluster, found)
        assert len(found) == fewest
