"""Pinned workers: on their host whenever it can take them, by few moves, and for good."""

from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState, slot_ids
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Share
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding, overfull
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place_tier
from sluice_ops.planning.shortage.fitting import place_lost
from sluice_ops.planning.shortage.minimums import giving
from tests.unit.sluice_ops.planning.clusters import (
    apart,
    checked_plan,
    clusters,
    dedicated,
    host_of,
    pins,
    spec_of,
    with_workers,
)
from tests.unit.sluice_ops.planning.test_again import REPAIRS, cluster_after, was_short
from tests.unit.sluice_ops.planning.test_apart import broken_rules, placements

SETTINGS = settings(max_examples=100)
REPAIR = ChangeSpec(kind="repair")
T = spec_of("t")


def filled(slots, pinned):
    """Return how many pinned workers are on their hosts."""
    return sum(min(count, [*slots].count(host)) for host, count in pinned.items())


@st.composite
def newly_pinned(draw):
    """Draw a cluster whose tiers were placed before one of them was pinned."""
    cluster = draw(clusters(rules=apart()))
    assume(with_workers(cluster))
    name = draw(st.sampled_from(with_workers(cluster)))
    cluster = replace(cluster, rules=replace(cluster.rules, pinned={name: draw(pins)}))
    if draw(st.integers(0, 3)) == 0:
        cluster = cluster.with_state(draw(st.sampled_from(sorted(cluster.hosts))), HostState.CORDONED)
    return cluster, name


def roomy(cluster):
    """Return the cluster with room for every handover on every host."""
    room = Capacity(cpu=128.0, memory=1 << 20)
    return cluster.with_hosts({name: replace(host, capacity=room) for name, host in cluster.hosts.items()})


def repaired(cluster):
    """Return the cluster after repairs, the last of which moves nothing."""
    for _ in range(REPAIRS):
        planned = checked_plan(REPAIR, cluster)
        cluster = cluster_after(planned, REPAIR, cluster)
    assert planned.moves == ()
    return cluster


def possible_slots(cluster, name):
    """Yield all hosts for a tier's workers that have room beside all units, and keep the rules."""
    spec, hosts = cluster.tiers[name].spec, cluster.hosts
    usable = sorted(host for host in hosts if hosts[host].usable)
    for slots in combinations_with_replacement(usable, target(name, cluster.rules).own):
        there = Placement(driver=slots[0], slots=slots)
        held = {host: hosts[host].holding(spec.quantum, count) for host, count in Counter(slots).items()}
        if not overfull(held) and broken_rules({**placements(cluster), name: there}, cluster) == []:
            yield slots


@SETTINGS
@given(newly_pinned())
def test_pins_are_filled_as_far_as_can_be_with_the_fewest_moves(drawn):
    cluster, name = drawn
    tier, pinned = cluster.tiers[name], cluster.rules.pinned[name]
    try:
        after, _ = place_tier(tier.spec, target(name, cluster.rules), tier.placement, cluster.hosts)
    except RefusedError:
        return
    price = lambda slots: (-filled(slots, pinned), (Counter(slots) - Counter(tier.placement.slots)).total())
    assert price(after.slots) == min(map(price, possible_slots(cluster, name)))


@SETTINGS
@given(newly_pinned())
def test_a_repair_fills_pins_and_a_second_repair_moves_nothing(drawn):
    cluster, name = drawn
    cluster, pinned = roomy(cluster), cluster.rules.pinned[name]
    end = repaired(cluster)
    slots = end.tiers[name].placement.slots
    most = max((filled(other, pinned) for other in possible_slots(end, name)), default=0)
    assert filled(slots, pinned) >= most
    lacking = [host for host, count in pinned.items() if slots.count(host) < count]
    notes = plan(REPAIR, end).notes
    assert all(any(f" pinned workers on {host}: " in note for note in notes) for host in lacking)


@SETTINGS
@given(newly_pinned(), st.data())
def test_no_change_takes_a_pinned_worker_away_without_need(drawn, data):
    cluster, name = drawn
    cluster = repaired(roomy(cluster))
    others = sorted(cluster.hosts.keys() - cluster.rules.pinned[name].keys())
    spec = data.draw(
        st.builds(ChangeSpec, kind=st.just("scale"), tier=st.just(name), k=st.integers(1, 4))
        | st.builds(ChangeSpec, kind=st.just("drain"), host=st.sampled_from(others or ["h1"]))
        | st.just(ChangeSpec(kind="rebalance"))
    )
    busy = {tier: data.draw(st.sampled_from([0.1, 0.9])) for tier in cluster.tiers}
    if spec.kind == "rebalance":
        small = {
            host.name: replace(host, capacity=Capacity(cpu=8, memory=1 << 20))
            for host in cluster.hosts.values()
        }
        cluster = replace(cluster, busy=busy, hosts=small)
        spec = KINDS["rebalance"].complete(spec, None, cluster)
    planned = checked_plan(spec, cluster)
    usable = aftermath(spec, cluster).hosts
    pinned = {
        host: count
        for host, count in cluster.rules.pinned[name].items()
        if host in usable and usable[host].usable
    }
    for move in planned.moves if planned is not None else ():
        if move.tier == name and len(move.after.slots) >= sum(pinned.values()):
            assert filled(move.after.slots, pinned) >= filled(move.before.slots, pinned)


@SETTINGS
@given(newly_pinned(), st.data())
def test_a_worker_comes_back_by_one_move_after_a_drain(drawn, data):
    cluster, name = drawn
    host = data.draw(st.sampled_from(sorted(cluster.hosts)))
    assume(all(each.usable for each in cluster.hosts.values()))
    rules = replace(cluster.rules, pinned={name: {host: 1}})
    cluster = repaired(replace(roomy(cluster), rules=rules))
    before = cluster.tiers[name].placement.slots.count(host)
    drain = ChangeSpec(kind="drain", host=host)
    planned = checked_plan(drain, cluster)
    assume(before and planned is not None)
    drained = cluster_after(planned, drain, cluster)
    assert drained.tiers[name].placement.slots.count(host) == 0
    repair = ChangeSpec(kind="repair", tier=name)
    assert any(f" pinned workers on {host}: {host} is " in note for note in plan(repair, drained).notes)
    (move,) = checked_plan(repair, drained.with_state(host, HostState.UP)).moves
    assert host in move.after.slots
    assert 1 <= move.moved <= before or was_short(planned)


@SETTINGS
@given(newly_pinned(), st.integers(0, 3))
def test_a_lost_worker_starts_on_the_pinned_host(drawn, lost):
    cluster, name = drawn
    cluster = roomy(cluster)
    tier, pinned = cluster.tiers[name], cluster.rules.pinned[name]
    alive = tier.placement.slots[lost:]
    new = place_lost(tier.spec, len(tier.placement.slots) - len(alive), alive, cluster)
    allowed = {host for slots in possible_slots(cluster, name) for host in slots}
    if cluster.rules.spread.get(name) is None and new:
        missing = {
            host: max(0, count - alive.count(host)) for host, count in pinned.items() if host in allowed
        }
        assert filled(new, missing) == min(len(new), sum(missing.values()))


def cluster_of(*slots, pinned, k=None, hosts=(), **fields):
    """Return a cluster with one tier on h1 to h4, its driver on h1."""
    named = {name: host_of(name) for name in ("h1", "h2", "h3", "h4")} | {host.name: host for host in hosts}
    now = Placement(driver="h1", slots=slots)
    shares = {"t": Share(minimum=1, target=k or len(slots), maximum=8)}
    rules = Rules(shares=shares, partitions=8, pinned={"t": pinned}, **fields)
    tier = TierNow(T, now, workers=slot_ids("t", 3, len(slots)))
    return Cluster(holding(dedicated(named, rules), T, now), {"t": tier}, (), rules)


def slots_after(spec, cluster):
    """Return the hosts of the workers after a change, and whether it is done in place."""
    (move,) = checked_plan(spec, cluster).moves
    return move.after.slots, move.in_place


def test_a_missing_pin_is_drift_that_names_the_host():
    (move,) = checked_plan(REPAIR, cluster_of("h1", "h2", pinned={"h3": 1})).moves
    assert move.why == "has 0 of 1 pinned workers on h3"
    assert (move.moved, "h3" in move.after.slots) == (1, True)


def test_pinned_workers_may_share_a_host_while_others_are_free():
    cluster = cluster_of("h1", "h1", "h2", pinned={"h1": 2})
    assert checked_plan(REPAIR, cluster).notes == ("nothing has drifted",)
    assert checked_plan(REPAIR, cluster_of("h1", "h1", "h1", pinned={"h1": 2})).moves[0].moved == 1


def test_pins_to_a_full_host_leave_the_other_workers_even():
    cluster = cluster_of("h1", "h1", pinned={"h3": 2}, hosts=[host_of("h3", cpu=0.5)])
    assert len(set(slots_after(REPAIR, cluster)[0])) == 2


def test_a_tier_grows_first_where_it_lacks_pinned_workers():
    cluster = cluster_of("h1", "h2", pinned={"h1": 1, "h2": 2})
    assert slots_after(ChangeSpec(kind="scale", tier="t", k=3), cluster) == (("h1", "h2", "h2"), True)


def test_a_tier_shrinks_in_place_if_its_first_workers_are_pinned():
    cluster = cluster_of("h3", "h1", "h2", pinned={"h3": 1})
    assert slots_after(ChangeSpec(kind="scale", tier="t", k=1), cluster) == (("h3",), True)


def test_a_tier_is_handed_over_if_it_would_release_a_pinned_worker():
    cluster = cluster_of("h1", "h2", "h3", pinned={"h3": 1})
    assert slots_after(ChangeSpec(kind="scale", tier="t", k=1), cluster) == (("h3",), False)


def test_a_new_incarnation_has_its_pinned_workers_first():
    after, _ = place_tier(
        T,
        target("t", cluster_of("h1", pinned={"h3": 1, "h4": 1}, k=3).rules),
        None,
        {name: host_of(name) for name in ("h1", "h3", "h4")},
    )
    assert after.slots == ("h3", "h4", "h1")


def test_a_tier_below_its_minimum_takes_no_pinned_worker():
    needy = spec_of("u")
    hosts = {name: host_of(name, cpu=cpu) for name, cpu in (("h1", 2.5), ("h2", 1.0), ("h3", 1.0))}
    now = Placement(driver="h1", slots=("h2", "h3", "h1"))
    shares = {"t": Share(minimum=1, target=3, maximum=8), "u": Share(minimum=1, target=1, maximum=8)}
    for pinned, gives in (({}, 2), ({"h1": 1}, None)):
        rules = Rules(shares=shares, partitions=8, pinned={"t": pinned})
        tiers = {"t": TierNow(T, now), "u": TierNow(needy, None)}
        cluster = Cluster(holding(hosts, T, now), tiers, (), rules)
        assert giving("u", ["t"], cluster).get("t") == gives


def test_a_pin_is_filled_by_the_next_repair_if_another_tier_frees_the_room():
    specs = {"t": spec_of("t"), "u": spec_of("u", distance=1)}
    now = {"t": Placement(driver="h1", slots=("h3",)), "u": Placement(driver="h2", slots=("h2",))}
    rules = Rules(locality={"t": "h1"}, pinned={"u": {"h3": 1}}, partitions=8)
    hosts = {name: host_of(name, cpu=cpu) for name, cpu in (("h1", 4.0), ("h2", 4.0), ("h3", 1.0))}
    for name, placement in now.items():
        hosts = holding(hosts, specs[name], placement)
    cluster = Cluster(hosts, {name: TierNow(specs[name], now[name]) for name in specs}, (), rules)
    planned = checked_plan(REPAIR, cluster)
    assert [move.tier for move in planned.moves] == ["t"]
    assert planned.notes[0] == (
        "u has 0 of 1 pinned workers on h3; this cannot be repaired now: its hosts have room only after "
        "other moves"
    )
    (move,) = checked_plan(REPAIR, cluster_after(planned, REPAIR, cluster)).moves
    assert (move.tier, move.after.slots) == ("u", ("h3",))


@pytest.mark.parametrize(
    ("slots", "pinned", "fields", "reason"),
    [
        (("h1", "h2"), {"h9": 1}, {}, "h9: there is no such host"),
        (("h1", "h1"), {"h3": 1}, {"locality": {"t": "h1"}}, "h3: h3 is not at h1"),
        (
            ("h1", "h2"),
            {"h3": 1},
            {"dedicated": {"h3": frozenset({"u"})}},
            "h3: `dedicated` or `separate` keeps t off h3",
        ),
        (("h1", "h2"), {"h3": 1}, {"hosts": [host_of("h3", state=HostState.LOST)]}, "h3: h3 is lost"),
        (("h1", "h1"), {"h1": 3}, {}, "h1: t has 2 workers, fewer than its pins"),
        (
            ("h1", "h2"),
            {"h3": 1},
            {"hosts": [host_of("h3", cpu=0.5)]},
            "h3: h3 has no room beside the running units, or `spread` keeps t off it",
        ),
    ],
)
def test_a_pin_that_cannot_be_met_is_told_with_the_reason(slots, pinned, fields, reason):
    cluster = cluster_of(*slots, pinned=pinned, **fields)
    host, count = next(iter(pinned.items()))
    note = f"t has {slots.count(host)} of {count} pinned workers on {reason}"
    assert checked_plan(REPAIR, cluster).notes[-2:] == (note, "nothing has to move")


def migrate(to, number):
    return ChangeSpec(kind="migrate", tier="t", to=to, workers=(f"slot-t-3-{number}",))


def test_a_pinned_worker_does_not_move_alone_from_its_host():
    cluster = cluster_of("h1", "h3", pinned={"h3": 1})
    with pytest.raises(RefusedError) as refused:
        plan(migrate("h2", 1), cluster)
    assert str(refused.value) == (
        "after the move, t has 0 of 1 pinned workers on h3; move another worker, or lower pinned.t in the "
        "site file"
    )
    assert slots_after(migrate("h2", 0), cluster) == (("h2", "h3"), False)
    assert slots_after(migrate("h2", 1), cluster_of("h3", "h3", pinned={"h3": 1}))[0] == ("h3", "h2")


def test_the_checker_refuses_a_plan_that_leaves_a_pinned_host_empty():
    cluster = cluster_of("h1", "h3", pinned={"h3": 1})
    problem = "t would have 0 of its 1 pinned workers on h3"
    drain = ChangeSpec(kind="drain", host="h1")
    planned, after = plan(drain, cluster), aftermath(drain, cluster)
    assert violations(planned, drain, after) == []

    def with_slots(planned, *slots):
        (move,) = planned.moves
        placement = Placement(driver=move.after.driver, slots=slots)
        return planned.model_copy(update={"moves": (move.model_copy(update={"after": placement}),)})

    assert violations(with_slots(planned, "h2", "h4"), drain, after) == [problem]
    full = after.with_hosts({**after.hosts, "h3": replace(after.hosts["h3"], used_cpu=8.0)})
    assert violations(with_slots(planned, "h2", "h4"), drain, full) == []
    alone = migrate("h2", 1)
    assert problem in violations(with_slots(planned, "h1", "h2"), alone, cluster)
    grow = ChangeSpec(kind="scale", tier="t", k=2)
    cluster = cluster_of("h1", pinned={"h3": 1})
    planned, after = plan(grow, cluster), aftermath(grow, cluster)
    assert planned.moves[0].after.slots == ("h1", "h3")
    assert violations(with_slots(planned, "h1", "h2"), grow, after) == [problem]
