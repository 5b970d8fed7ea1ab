"""Starvation is drift: a repair moves a tier off the hosts that starve it, and onto no host with a
starved tier.
"""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import clusters, host_of, spec_of

REPAIR = ChangeSpec(kind="repair")


def starving(cluster, starved):
    """Return the cluster with the given tiers starved on each host."""
    return cluster.with_hosts(
        {name: replace(host, starves=starved.get(name, frozenset())) for name, host in cluster.hosts.items()}
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.data())
def test_a_repair_moves_starved_tiers_and_never_onto_starved_hosts(cluster, data):
    tiers_of_hosts = {name: sorted(set(host.tiers)) for name, host in cluster.hosts.items()}
    starved = {
        name: data.draw(st.frozensets(st.sampled_from(tiers)))
        for name, tiers in tiers_of_hosts.items()
        if tiers
    }
    cluster = starving(cluster, starved)
    planned = plan(REPAIR, cluster)
    assert violations(planned, REPAIR, aftermath(REPAIR, cluster)) == []
    bad = {name for name, tiers in starved.items() if tiers}
    for move in planned.moves:
        assert bad.isdisjoint(move.after.hosts)
    moved = {move.tier for move in planned.moves}
    for name, tier in cluster.tiers.items():
        starving_hosts = sorted(
            host for host in bad if name in starved[host] and tier.placement and host in tier.placement.hosts
        )
        reason = f"is starved of processor time on {', '.join(starving_hosts)}"
        if starving_hosts and name in moved:
            assert any(reason in move.why for move in planned.moves)
        elif starving_hosts:
            assert any(
                note.startswith(f"{name} ") and reason in note and "cannot be repaired now" in note
                for note in planned.notes
            )


def test_other_changes_may_use_a_host_with_a_starved_tier():
    spec, placement = spec_of("t"), Placement(driver="h1", slots=("h1",))
    hosts = holding({"h1": host_of("h1"), "h2": host_of("h2")}, spec, placement)
    cluster = starving(
        Cluster(hosts, {"t": TierNow(spec, placement)}, (), Rules(shares={"t": Share()})),
        {"h2": frozenset({"u"})},
    )
    (move,) = plan(ChangeSpec(kind="drain", host="h1"), cluster).moves
    assert move.after.hosts == {"h2"}


def test_a_repair_without_room_names_starved_hosts_not_cordoned_ones():
    spec, placement = spec_of("t"), Placement(driver="h1", slots=("h1",))
    hosts = holding({"h1": host_of("h1"), "h2": host_of("h2")}, spec, placement)
    cluster = starving(
        Cluster(hosts, {"t": TierNow(spec, placement)}, (), Rules(shares={"t": Share()})),
        {"h1": frozenset({"t"}), "h2": frozenset({"u"})},
    )
    notes = " ".join(plan(REPAIR, cluster).notes)
    assert "h1 has too little processor time for t, h2 has too little processor time for u" in notes
    assert "cordoned" not in notes
