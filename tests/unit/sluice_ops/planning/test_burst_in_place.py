"""A burst, and the end of it, change a tier's workers in place."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.shares import target
from tests.unit.sluice_ops.planning.clusters import checked_plan, host_of, spec_of

T = spec_of("t")


def burst_entry(extra, tenant="t"):
    return LayerEntry(
        tenant=tenant, layer=Layer.PERSON, extra=extra, extra_to="zone:ec2", owner="anna", at=0.0
    )


def cluster_of(*slots, home, extra=0, free=0.0, spec=T, minimum=1, **rules):
    """Return a cluster with one tier whose home is full but for `free` cores; e1 and e2 are on
    EC2, with room for two workers each.
    """
    at_home = sum(not name.startswith("e") for name in slots)
    hosts = {
        "h1": host_of("h1", cpu=at_home + 0.5 + free, memory=65536),
        "e1": host_of("e1", zone="ec2", cpu=2),
        "e2": host_of("e2", zone="ec2", cpu=2),
    }
    now = Placement(driver="h1", slots=slots)
    rules = Rules(
        shares={"t": Share(minimum=minimum, target=home, maximum=8)},
        layers=Layers(entries=(burst_entry(extra),) if extra else ()),
        partitions=8,
        shifts={"day": {"t": Numbers(target=home + 1)}},
        **rules,
    )
    return Cluster(holding(hosts, spec, now), {"t": TierNow(spec, now)}, (), rules)


def move_of(kind, cluster, **fields):
    """Return the checked move of the tier."""
    spec = ChangeSpec(kind=kind, **fields)
    planned = plan(spec, cluster)
    assert violations(planned, spec, aftermath(spec, cluster)) == []
    (move,) = planned.moves
    return move


def burst(cluster, k):
    return move_of("burst", cluster, tier="t", k=k)


def test_a_tier_that_fills_home_bursts_in_place():
    cluster = cluster_of("h1", "h1", home=2)
    planned = plan(ChangeSpec(kind="burst", tier="t", k=2), cluster)
    (move,) = planned.moves
    assert (move.in_place, move.kept, move.joining) == (True, 2, 2)
    assert move.after.slots[:2] == ("h1", "h1")
    assert {*move.after.slots[2:]} == {"e1", "e2"}
    assert planned.predicted_seconds == cluster.pace.join_in_place


def test_a_further_burst_needs_room_for_its_own_workers_only():
    move = burst(cluster_of("h1", "e1", "e1", "e2", home=1, extra=3), 1)
    assert move.after.slots == ("h1", "e1", "e1", "e2", "e2")
    with pytest.raises(RefusedError, match="find no room at zone:ec2"):
        burst(cluster_of("h1", "e1", "e1", "e2", home=1, extra=3), 2)


def test_a_tier_that_lacks_workers_at_home_bursts_all_the_same():
    move = burst(cluster_of("h1", "h1", home=4), 1)
    assert (move.after.slots, move.short) == (("h1", "h1", "e1"), 2)
    assert burst(cluster_of("h1", "h1", home=4, free=2), 1).after.slots == ("h1", "h1", "h1", "h1", "e1")
    with pytest.raises(RefusedError, match="find no room"):
        burst(cluster_of("h1", "h1", home=4, minimum=3), 1)


def test_a_realtime_tier_bursts_in_place():
    spec = T.model_copy(update={"mode": Mode.REALTIME})
    assert burst(cluster_of("h1", "h1", home=2, spec=spec), 1).in_place


def test_a_tier_with_state_bursts_by_a_handover():
    spec = T.model_copy(update={"state": True})
    assert not burst(cluster_of("h1", "h1", home=2, free=3, spec=spec), 1).in_place
    with pytest.raises(RefusedError, match="find no room"):
        burst(cluster_of("h1", "h1", home=2, spec=spec), 1)


def test_the_last_workers_leave_in_place():
    move = move_of("leave", cluster_of("h1", "h1", "e1", "e2", home=2, extra=2))
    assert (move.in_place, move.after.slots, move.released, move.joining) == (True, ("h1", "h1"), 2, 0)


def test_a_part_of_a_burst_leaves():
    cluster = cluster_of("h1", "e1", "e1", "e2", home=1, extra=3)
    move = move_of("leave", cluster, tier="t", k=1)
    assert (move.in_place, move.after.slots) == (True, ("h1", "e1", "e1"))
    after = aftermath(ChangeSpec(kind="leave", tier="t", k=1), cluster)
    assert target("t", after.rules).extra == 2
    assert target("t", aftermath(ChangeSpec(kind="leave", tier="t", k=3), cluster).rules).extra == 0


def test_a_leave_of_one_tier_keeps_the_bursts_of_others():
    cluster = cluster_of("h1", "e1", home=1, extra=1)
    cluster = cluster.with_layers(Layers(entries=(burst_entry(1), burst_entry(2, "other"))))
    after = aftermath(ChangeSpec(kind="leave", tier="t"), cluster).rules.layers
    assert [(entry.tenant, entry.extra) for entry in after.entries] == [("other", 2)]
    assert aftermath(ChangeSpec(kind="leave"), cluster).rules.layers.entries == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 1}, "leave needs a tier for k workers"),
        ({"tier": "t", "k": 2}, r'tier "t" has a burst of 1 worker, so 2 cannot leave EC2; ask for 1 to 1'),
        ({"tier": "u", "k": 1}, 'there is no tier "u"'),
    ],
)
def test_a_leave_of_more_than_there_is_is_refused(fields, message):
    with pytest.raises(RefusedError, match=message):
        plan(ChangeSpec(kind="leave", **fields), cluster_of("h1", "e1", home=1, extra=1))
    with pytest.raises(RefusedError, match='tier "t" has no burst'):
        plan(ChangeSpec(kind="leave", tier="t", k=1), cluster_of("h1", home=1))


def test_a_home_worker_behind_the_burst_is_released_and_comes_back():
    """So a tier that fills home can leave EC2, too: a handover would have no room."""
    move = move_of("leave", cluster_of("h1", "h1", "e1", "h1", home=3, extra=1))
    assert (move.in_place, move.after.slots) == (True, ("h1", "h1", "h1"))
    assert (move.kept, move.released, move.joining) == (2, 2, 1)
    cluster = cluster_of("h1", "e1", "h2", home=2, extra=1)
    hosts = {**cluster.hosts, "h2": host_of("h2", cpu=1)}
    cluster = cluster.with_hosts(holding(hosts, T, Placement(driver="gone", slots=("h2",))))
    move = move_of("leave", cluster)
    assert (move.in_place, move.after.slots) == (True, ("h1", "h2"))
    assert (move.kept, move.released, move.joining) == (1, 2, 1)


@pytest.mark.parametrize("rule", [{"minimum": 2}, {"budget": {"t": 0}}])
def test_too_few_workers_meanwhile_lead_to_a_handover(rule):
    cluster = cluster_of("h1", "e1", "h2", home=2, extra=1, free=3, **rule)
    hosts = {**cluster.hosts, "h2": host_of("h2", cpu=1)}
    cluster = cluster.with_hosts(holding(hosts, T, Placement(driver="gone", slots=("h2",))))
    assert not move_of("leave", cluster).in_place


def test_a_tier_grows_at_home_while_a_burst_is_out():
    cluster = cluster_of("h1", "e1", home=1, extra=1, free=1)
    for kind, fields in (("scale", {"tier": "t", "k": 2}), ("shift", {"shift": "day"})):
        move = move_of(kind, cluster, **fields)
        assert (move.in_place, move.after.slots) == (True, ("h1", "e1", "h1"))


def test_a_tier_shrinks_at_home_and_keeps_its_burst():
    move = move_of("scale", cluster_of("h1", "h1", "e1", home=2, extra=1), tier="t", k=1)
    assert (move.in_place, move.after.slots) == (True, ("h1", "e1"))


def test_a_running_burst_worker_stays_while_its_host_is_cordoned():
    cluster = cluster_of("h1", "e1", home=1, extra=1, free=1).with_state("e1", HostState.CORDONED)
    cluster = cluster.with_state("e2", HostState.CORDONED)
    move = move_of("scale", cluster, tier="t", k=2)
    assert (move.in_place, move.after.slots) == (True, ("h1", "e1", "h1"))


def test_a_tier_with_a_lost_worker_of_its_burst_leaves():
    cluster = cluster_of("h1", "e1", home=1, extra=1).with_state("e1", HostState.LOST)
    move = move_of("leave", cluster)
    assert (move.in_place, move.after.slots) == (True, ("h1",))


@st.composite
def bursting(draw):
    """Draw a tier with a burst, in any order of its slots, and a change."""
    names = st.sampled_from(["h1", "h2", "e1", "e2"])
    slots = tuple(draw(st.lists(names, min_size=1, max_size=6)))
    hosts = {
        name: host_of(
            name,
            zone="ec2" if name.startswith("e") else "onprem",
            cpu=slots.count(name) + draw(st.sampled_from([0.5, 1, 2, 6])),
            memory=65536,
            state=draw(st.sampled_from([HostState.UP, HostState.UP, HostState.CORDONED, HostState.LOST])),
        )
        for name in ("h1", "h2", "e1", "e2")
    }
    away = sum(name.startswith("e") for name in slots)
    spec = T.model_copy(update={"mode": draw(st.sampled_from(Mode))})
    now = Placement(driver="h1", slots=slots)
    rules = Rules(
        shares={
            "t": Share(
                minimum=draw(st.integers(0, 2)),
                target=draw(st.integers(2, 4)),
                maximum=12,
                spare=draw(st.sampled_from([0, 0, 1])),
            )
        },
        layers=Layers(entries=(burst_entry(away),) if away else ()),
        partitions=4,
        budget=draw(st.sampled_from([{}, {"t": 0}, {"t": 1}])),
        shifts={"day": {"t": Numbers(target=4)}},
    )
    cluster = Cluster(holding(hosts, spec, now), {"t": TierNow(spec, now)}, (), rules)
    change = draw(
        st.sampled_from(
            [
                {"kind": "burst", "tier": "t", "k": 1},
                {"kind": "burst", "tier": "t", "k": 3},
                {"kind": "leave"},
                {"kind": "leave", "tier": "t"},
                {"kind": "leave", "tier": "t", "k": 1},
                {"kind": "scale", "tier": "t", "k": 2},
                {"kind": "scale", "tier": "t", "k": 4},
                {"kind": "shift", "shift": "day"},
                {"kind": "settle", "tier": "t"},
            ]
        )
    )
    return cluster, ChangeSpec(**change)


@given(bursting())
def test_the_checker_accepts_every_plan_of_a_tier_with_a_burst(case):
    cluster, spec = case
    planned = checked_plan(spec, cluster)
    for move in () if planned is None else planned.moves:
        if move.in_place:
            assert move.after.driver == move.before.driver
            assert move.after.slots[: move.kept] == move.before.slots[: move.kept]
            assert move.kept
        if spec.kind == "leave" and spec.k is None:
            assert not any(name.startswith("e") for name in move.after.hosts)


@given(bursting())
def test_nothing_moves_after_a_change_in_place(case):
    cluster, spec = case
    planned = checked_plan(spec, cluster)
    moves = () if planned is None else [move for move in planned.moves if move.in_place and not move.short]
    for move in moves:
        after = aftermath(spec, cluster)
        tier = replace(after.tiers["t"], placement=move.after)
        hosts = holding(holding(cluster.hosts, tier.spec, move.before, -1), tier.spec, move.after)
        settled = replace(after, hosts=hosts, tiers={"t": tier})
        assert plan(ChangeSpec(kind="settle", tier="t"), settled).moves == ()


def test_a_worker_at_both_places_counts_for_the_burst_once_home_is_full():
    now = Placement(driver="e1", slots=("e1", "e1", "e1", "e2"))
    hosts = {
        "e1": host_of("e1", zone="ec2", rack="r1", state=HostState.CORDONED),
        "e2": host_of("e2", zone="ec2", state=HostState.CORDONED),
    }
    rules = Rules(
        shares={"t": Share(minimum=1, target=3, maximum=4)},
        locality={"t": "rack:r1"},
        layers=Layers(entries=(burst_entry(2),)),
        partitions=8,
    )
    cluster = Cluster(holding(hosts, T, now), {"t": TierNow(T, now)}, (), rules)
    move = move_of("scale", cluster, tier="t", k=1)
    assert move.after.slots == ("e1", "e1", "e1")
