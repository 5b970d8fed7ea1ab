"""A single worker moves to a host: the tier's other units stay, and no rule is broken."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState, slot_ids
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, LayerEntry, Layers, Share
from sluice_ops.model.spread import Spread
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import (
    Cluster,
    RefusedError,
    Rules,
    TierNow,
    holding,
    moved,
    overfull,
)
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import place_tier
from tests.unit.sluice_ops.planning.clusters import (
    apart,
    checked_plan,
    clusters,
    dedicated,
    host_of,
    spec_of,
    with_workers,
)
from tests.unit.sluice_ops.planning.test_apart import broken_rules, placements

SETTINGS = settings(max_examples=100)
T = spec_of("t")
NO_LAYERS = Layers()


@st.composite
def wishes(draw):
    """Draw a cluster, a tier in it, and a migration of one of its workers."""
    cluster = draw(clusters(rules=apart()))
    assume(with_workers(cluster))
    name = draw(st.sampled_from(with_workers(cluster)))
    tiers = {
        other: replace(tier, workers=slot_ids(other, 3, len(tier.placement.slots)))
        for other, tier in cluster.tiers.items()
    }
    racks = {f"rack:{host.rack}" for host in cluster.hosts.values() if host.rack}
    zones = {f"zone:{host.zone}" for host in cluster.hosts.values()}
    place = draw(st.none() | st.sampled_from(sorted(racks | zones)))
    rules = replace(cluster.rules, locality={} if place is None else {name: place})
    cluster = replace(cluster, tiers=tiers, rules=rules)
    if draw(st.integers(0, 3)) == 0:
        cluster = cluster.with_state(draw(st.sampled_from(sorted(cluster.hosts))), HostState.CORDONED)
    worker, now = draw(st.sampled_from([*zip(tiers[name].workers, tiers[name].placement.slots, strict=True)]))
    to = draw(st.sampled_from(sorted(cluster.hosts.keys() - {now})))
    return cluster, ChangeSpec(kind="migrate", tier=name, to=to, workers=(worker,))


def wanted(cluster, spec):
    """Return the tier's placement with only the named worker elsewhere."""
    tier = cluster.tiers[spec.tier]
    (number,) = (tier.workers.index(worker) for worker in spec.workers)
    slots = [*tier.placement.slots]
    slots[number] = spec.to
    return Placement(driver=tier.placement.driver, slots=tuple(slots))


def is_allowed(after, cluster, name):
    """Return whether a whole incarnation may start exactly there, beside the running one."""
    hosts, place = cluster.hosts, cluster.rules.locality.get(name)
    if place is None or not any(host.usable and host.matches(place) for host in hosts.values()):
        place = "zone:onprem", "zone:annex"
    else:
        place = (place,)
    return (
        all(
            hosts[host].usable and any(hosts[host].matches(allowed) for allowed in place)
            for host in after.hosts
        )
        and broken_rules({**placements(cluster), name: after}, cluster) == []
        and not loses_a_pin(after, cluster, name, place)
        and overfull(holding(hosts, cluster.tiers[name].spec, after)) == []
    )


def loses_a_pin(after, cluster, name, places):
    """Return whether a pinned worker leaves a host that takes it, without another in its place."""
    before = cluster.tiers[name].placement.slots.count
    return any(
        after.slots.count(host) < min(count, before(host))
        and cluster.hosts[host].usable
        and any(cluster.hosts[host].matches(place) for place in places)
        for host, count in cluster.rules.pinned.get(name, {}).items()
        if host in cluster.hosts
    )


@SETTINGS
@given(wishes())
def test_only_the_named_worker_moves_and_only_where_it_may(wish):
    cluster, spec = wish
    before, after = cluster.tiers[spec.tier].placement, wanted(cluster, spec)
    planned = checked_plan(spec, cluster)
    assert (planned is not None) == is_allowed(after, cluster, spec.tier)
    if planned is not None:
        (move,) = planned.moves
        assert (move.tier, move.before, move.after, move.short) == (spec.tier, before, after, 0)


@SETTINGS
@given(wishes())
def test_later_changes_leave_the_worker_unless_the_plan_notes_a_repair(wish):
    cluster, spec = wish
    name, tier = spec.tier, cluster.tiers[spec.tier]
    planned = checked_plan(spec, cluster)
    if planned is None:
        return
    after = planned.moves[0].after
    hosts = moved(cluster.hosts, tier.spec, tier.placement, after)
    later = replace(cluster, hosts=hosts, tiers={**cluster.tiers, name: replace(tier, placement=after)})
    assert plan(ChangeSpec(kind="settle", tier=name), later).moves == ()
    assert plan(spec, later).moves == ()
    repair = plan(ChangeSpec(kind="repair", tier=name), later)
    notes = [note for note in repair.notes if " pinned workers on " not in note or "be repaired now" in note]
    drifted = {*(move.tier for move in repair.moves), *(note.split()[0] for note in notes)}
    assert (name in drifted) == any(note.startswith(f"afterwards {name} ") for note in planned.notes)
    again, _ = place_tier(tier.spec, target(name, later.rules), after, holding(hosts, tier.spec, after, -1))
    assert (again.driver, sorted(again.slots)) == (after.driver, sorted(after.slots))


def cluster_of(*slots, hosts=(), k=None, layers=NO_LAYERS, **rules):
    """Return a cluster with one tier, its driver on h1; `hosts` replaces or adds to h1 to h4."""
    named = {name: host_of(name) for name in ("h1", "h2", "h3", "h4")} | {host.name: host for host in hosts}
    now = Placement(driver="h1", slots=slots)
    shares = {"t": Share(minimum=1, target=k or len(slots), maximum=8)}
    all_rules = Rules(shares=shares, partitions=8, layers=layers, **rules)
    tier = TierNow(T, now, workers=slot_ids("t", 3, len(slots)))
    return Cluster(holding(dedicated(named, all_rules), T, now), {"t": tier}, (), all_rules)


def migrate(to, *numbers):
    return ChangeSpec(
        kind="migrate", tier="t", to=to, workers=tuple(f"slot-t-3-{number}" for number in numbers or (1,))
    )


def refusal(spec, cluster):
    with pytest.raises(RefusedError) as refused:
        plan(spec, cluster)
    return str(refused.value)


def test_a_worker_moves_alone_and_no_place_is_kept():
    cluster = cluster_of("h1", "h2")
    planned = checked_plan(migrate("h3"), cluster)
    assert planned.moves[0].after == Placement(driver="h1", slots=("h1", "h3"))
    assert planned.notes == ()
    assert KINDS["migrate"].layers(migrate("h3"), cluster, "anna", 1.0) == Layers()


def test_several_workers_move_together():
    planned = checked_plan(migrate("h4", 0, 2), cluster_of("h1", "h2", "h3"))
    assert planned.moves[0].after.slots == ("h4", "h2", "h4")


def test_a_worker_that_is_there_already_moves_nothing():
    planned = checked_plan(migrate("h2"), cluster_of("h1", "h2"))
    assert (planned.moves, planned.notes) == ((), ("nothing has to move",))


def test_a_plan_notes_that_a_repair_would_move_a_worker_again():
    planned = checked_plan(migrate("h1"), cluster_of("h1", "h2"))
    assert planned.notes == (
        (
            "afterwards t has 2 workers on h1, but there is room to have at most 1 on each host: "
            "a repair moves workers of t again"
        ),
    )


def test_a_worker_of_a_burst_moves_among_the_hosts_of_the_burst():
    burst = Layers(
        entries=(
            LayerEntry(tenant="t", layer=Layer.PERSON, extra=1, extra_to="zone:ec2", owner="anna", at=0.0),
        )
    )
    in_ec2 = [host_of("e1", zone="ec2"), host_of("e2", zone="ec2")]
    cluster = cluster_of("h1", "e1", hosts=in_ec2, k=1, layers=burst)
    assert checked_plan(migrate("e2"), cluster).moves[0].after.slots == ("h1", "e2")
    assert refusal(migrate("h2"), cluster).startswith(
        "slot-t-3-1 cannot move to h2: it has to be at zone:ec2; "
    )
    assert refusal(migrate("e2", 0), cluster).startswith(
        "slot-t-3-0 cannot move to e2: it has to be at one of the site's own hosts; "
    )


FULL = host_of("h3", cpu=0.5)


@pytest.mark.parametrize(
    ("spec", "cluster", "message"),
    [
        (
            migrate("h3", 7),
            cluster_of("h1", "h2"),
            'tier "t" has no worker slot-t-3-7; its workers: slot-t-3-0 on h1, slot-t-3-1 on h2',
        ),
        (
            migrate("h9"),
            cluster_of("h1", "h2"),
            "slot-t-3-1 cannot move to h9: a single worker moves to a host; known hosts: h1, h2, h3, h4",
        ),
        (
            migrate("zone:onprem"),
            cluster_of("h1", "h2"),
            (
                "slot-t-3-1 cannot move to zone:onprem: a single worker moves to a host; "
                "known hosts: h1, h2, h3, h4"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", hosts=[host_of("h3", state=HostState.CORDONED)]),
            (
                "slot-t-3-1 cannot move to h3: h3 is cordoned; choose another host, or return it first: "
                "`sluice return h3`"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", hosts=[host_of("h3", state=HostState.LOST)]),
            (
                "slot-t-3-1 cannot move to h3: h3 is lost; choose another host, or return it first: "
                "`sluice return h3`"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", hosts=[host_of("h3", zone="annex")], locality={"t": "zone:onprem"}),
            (
                "slot-t-3-1 cannot move to h3: it has to be at zone:onprem; choose a host there, or move the "
                "whole tier with `sluice migrate t h3`"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", hosts=[FULL]),
            (
                'tier "t": h3 has no room for the next incarnation beside the running units: it needs 1 cpu '
                "and 1024 MiB, and 0.5 cpu and 8192 MiB are free; free room on h3, or move the whole tier "
                "with `sluice migrate t PLACE`"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", hosts=[host_of("h1", state=HostState.CORDONED)]),
            (
                'tier "t": the next incarnation cannot start on h1, which is cordoned; return h1 with '
                "`sluice return h1`, or move the whole tier with `sluice migrate t PLACE`"
            ),
        ),
        (
            migrate("h1"),
            cluster_of("h1", "h2", spread={"t": Spread(host=1)}),
            (
                "after the move, t has more than the allowed 1 worker in one host: 2 in host h1; "
                "choose another host, or change the site file"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", dedicated={"h3": frozenset({"u"})}),
            (
                "after the move, t is on hosts that are dedicated to others: h3 (to u); "
                "choose another host, or change the site file"
            ),
        ),
        (
            migrate("h3"),
            cluster_of("h1", "h2", k=3),
            (
                "t has 2 workers, but should have 3, so its workers cannot move one by one; "
                "repair that first with `sluice drift --repair`"
            ),
        ),
    ],
)
def test_a_refusal_names_the_cause_and_the_next_step(spec, cluster, message):
    assert refusal(spec, cluster) == message


def test_a_stopped_tier_has_no_worker_to_move():
    cluster = cluster_of("h1", "h2")
    stopped = replace(cluster, tiers={"t": TierNow(T, None)})
    assert refusal(migrate("h3"), stopped) == (
        'tier "t" has no worker slot-t-3-1; its workers: none, because t does not run'
    )


def test_the_checker_refuses_a_plan_that_moves_another_worker_too():
    cluster = cluster_of("h1", "h2")
    planned = plan(migrate("h3"), cluster)
    (move,) = planned.moves
    for placement in (
        Placement(driver="h1", slots=("h4", "h3")),
        Placement(driver="h4", slots=("h1", "h3")),
    ):
        other = planned.model_copy(update={"moves": (move.model_copy(update={"after": placement}),)})
        assert "t would move more than its worker 1" in violations(other, migrate("h3"), cluster)
    stays = planned.model_copy(update={"moves": ()})
    assert violations(stays, migrate("h3"), cluster) == [
        "t would not move, but has its worker 1 on h2, not on h3"
    ]


def test_a_worker_moves_into_room_that_batch_gives_back():
    shares = {"t": Share(minimum=1, target=2, maximum=8), "batch": Share(minimum=0, target=1, maximum=8)}
    cluster = cluster_of("h1", "h2", hosts=[host_of("h3", cpu=1)])
    rules = replace(cluster.rules, shares=shares, batch_quantum=T.quantum)
    full = replace(cluster.hosts["h3"], used_cpu=1.0, used_memory=1024)
    lent = replace(cluster, hosts={**cluster.hosts, "h3": full}, batch=("h3",), rules=rules)
    planned = checked_plan(migrate("h3"), lent)
    assert planned.moves[0].after.slots == ("h1", "h3")
    assert planned.batch_kept == ()
