"""Leaving burst hosts: what a person sent there goes, what has its place there stays and is named, and once is enough."""

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


def said(**what):
    return LayerEntry(tenant="t", layer=Layer.PERSON, owner="anna", at=0.0, **what)


def cluster_of(*slots, entries=(), locality=None):
    """Return a cluster where one tier is at these hosts: h1, and e1 on EC2, are fast, h2 and e2 are not."""
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


def left(cluster):
    """Leave, and leave once more; return what the first one moves and says."""
    planned, after = plan(LEAVE, cluster), aftermath(LEAVE, cluster)
    assert violations(planned, LEAVE, after) == []
    (tier,) = after.tiers.values()
    placed = tier.placement
    for move in planned.moves:
        placed = move.after
    again = replace(
        after,
        hosts=holding(holding(after.hosts, T, tier.placement, -1), T, placed),
        tiers={"t": replace(tier, placement=placed)},
    )
    assert plan(LEAVE, again).moves == ()
    return [sorted(move.after.hosts) for move in planned.moves], planned.notes


@pytest.mark.parametrize("place", ["e1", "zone:ec2"])
def test_a_place_that_is_on_burst_hosts_alone_is_taken_back(place):
    assert left(cluster_of("e1", "e1", entries=(said(to=place),))) == ([["h1", "h2"]], ())


@pytest.mark.parametrize(
    ("more", "who"),
    [
        ({"entries": (said(to="label:fast"),)}, "anna set its place, label:fast"),
        ({"locality": {"t": "label:fast"}}, "locality.t in the site file set its place, label:fast"),
        ({"locality": {"t": "zone:ec2"}}, "locality.t in the site file set its place, zone:ec2"),
        (
            {"locality": {"t": "zone:ec2"}, "entries": (said(to="e1"),)},
            "locality.t in the site file set its place, zone:ec2",
        ),
    ],
)
def test_what_has_its_place_there_stays_and_it_is_said_who_says_so(more, who):
    moves, notes = left(cluster_of("e1", "e1", **more))
    assert moves == []
    kept = "Instances on which a tier runs are not terminated. To terminate them, first move the tier with `sluice migrate t PLACE`, then leave again"
    assert notes == (f"t stays on e1: {who}. {kept}", "nothing has to move")


def test_the_workers_of_a_burst_go_though_the_tier_has_its_place_there_too():
    burst = said(extra=1, extra_to="zone:ec2")
    moves, _ = left(cluster_of("h1", "e1", "e1", entries=(burst,), locality={"t": "label:fast"}))
    assert len(moves) == 1
    assert left(cluster_of("h1", "h1", "e2", entries=(burst,), locality={"t": "label:fast"}))[0] == [["h1"]]


def test_a_given_up_tier_blocks_a_leave_only_where_it_has_to_move():
    stays = cluster_of("e1", "e1", locality={"t": "zone:ec2"})
    goes = cluster_of("e1", "e1")
    stays, goes = (
        replace(each, tiers={"t": replace(each.tiers["t"], failed=True)}) for each in (stays, goes)
    )
    assert plan(LEAVE, stays).notes[0].startswith("t stays on e1")
    with pytest.raises(RefusedError, match="was given up, and cannot be handed over"):
        plan(LEAVE, goes)
