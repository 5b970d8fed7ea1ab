"""Leaving burst hosts: an operator's placement is taken back; a tier with its place there stays and
is named; a second leave moves nothing.
"""

from dataclasses import replace

import pytest

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, LayerEntry, Layers, Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import host_of, spec_of

LEAVE = ChangeSpec(kind="leave")
T = spec_of("t")


def entry(**fields):
    return LayerEntry(tenant="t", layer=Layer.PERSON, owner="anna", at=0.0, **fields)


def cluster_of(*slots, entries=(), locality=None):
    """Return a cluster with one tier on these hosts.

    h1 and e1 are fast, h2 and e2 are not; e1 and e2 are on EC2.
    """
    hosts = {
        name: host_of(name, zone=zone, labels=labels)
        for name, zone, labels in (
            ("h1", "onprem", ("fast",)),
            ("h2", "onprem", ()),
            ("e1", "ec2", ("fast",)),
            ("e2", "ec2", ()),
        )
    }
    now = Placement(driver=slots[0], slots=slots)
    rules = Rules(
        shares={"t": Share(minimum=1, target=2, maximum=4)},
        locality=locality or {},
        layers=Layers(entries=entries),
        partitions=8,
    )
    return Cluster(holding(hosts, T, now), {"t": TierNow(T, now)}, (), rules)


def leave_twice(cluster):
    """Leave twice; return the moves and notes of the first leave."""
    planned, after = plan(LEAVE, cluster), aftermath(LEAVE, cluster)
    assert violations(planned, LEAVE, after) == []
    (tier,) = after.tiers.values()
    placed = tier.placement
    for move in planned.moves:
        placed = move.after
    after_leave = replace(
        after,
        hosts=holding(holding(after.hosts, T, tier.placement, -1), T, placed),
        tiers={"t": replace(tier, placement=placed)},
    )
    assert plan(LEAVE, after_leave).moves == ()
    return [sorted(move.after.hosts) for move in planned.moves], planned.notes


@pytest.mark.parametrize("place", ["e1", "zone:ec2"])
def test_an_operators_place_on_burst_hosts_is_taken_back(place):
    assert leave_twice(cluster_of("e1", "e1", entries=(entry(to=place),))) == ([["h1", "h2"]], ())


@pytest.mark.parametrize(
    ("placement", "setter"),
    [
        ({"entries": (entry(to="label:fast"),)}, "anna set its place, label:fast"),
        ({"locality": {"t": "label:fast"}}, "locality.t in the site file set its place, label:fast"),
        ({"locality": {"t": "zone:ec2"}}, "locality.t in the site file set its place, zone:ec2"),
        (
            {"locality": {"t": "zone:ec2"}, "entries": (entry(to="e1"),)},
            "locality.t in the site file set its place, zone:ec2",
        ),
    ],
)
def test_a_tier_with_its_place_on_burst_hosts_stays_with_a_note(placement, setter):
    moves, notes = leave_twice(cluster_of("e1", "e1", **placement))
    assert moves == []
    advice = (
        "Instances on which a tier runs are not terminated. "
        "To terminate them, first move the tier with `sluice migrate t PLACE`, then leave again"
    )
    assert notes == (f"t stays on e1: {setter}. {advice}", "nothing has to move")


def test_a_bursts_workers_leave_although_the_tiers_place_includes_them():
    burst = entry(extra=1, extra_to="zone:ec2")
    moves, _ = leave_twice(cluster_of("h1", "e1", "e1", entries=(burst,), locality={"t": "label:fast"}))
    assert len(moves) == 1
    assert leave_twice(cluster_of("h1", "h1", "e2", entries=(burst,), locality={"t": "label:fast"}))[0] == [
        ["h1"]
    ]


def test_a_given_up_tier_blocks_a_leave_only_where_it_has_to_move():
    stays = cluster_of("e1", "e1", locality={"t": "zone:ec2"})
    goes = cluster_of("e1", "e1")
    stays, goes = (
        replace(cluster, tiers={"t": replace(cluster.tiers["t"], failed=True)}) for cluster in (stays, goes)
    )
    assert plan(LEAVE, stays).notes[0].startswith("t stays on e1")
    with pytest.raises(RefusedError, match="was given up, and cannot be handed over"):
        plan(LEAVE, goes)
