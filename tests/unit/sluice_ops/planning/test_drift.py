"""Drift is only what a repair can repair now.

An unavailable burst or an allowed place is no drift, and no change hands a tier over for it.
"""

from dataclasses import replace

import pytest

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import NO_DRIFT, ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import host_of, spec_of

T = spec_of("t")
REPAIR = ChangeSpec(kind="repair")
BURST = Layers(
    entries=(LayerEntry(tenant="t", layer=Layer.PERSON, extra=1, extra_to="zone:ec2", owner="anna", at=0.0),)
)


def cluster_of(driver, *slots, hosts=(), layers=BURST, **rules):
    """Return a cluster with one tier on these hosts; `hosts` replaces or adds to h1 to h4."""
    named = {name: host_of(name) for name in ("h1", "h2", "h3", "h4")} | {host.name: host for host in hosts}
    now = Placement(driver=driver, slots=slots)
    base_rules = Rules(
        shares={"t": Share(minimum=1, target=2, maximum=4)},
        shifts={"day": {"t": Numbers(target=3)}},
        partitions=8,
    )
    return Cluster(
        holding(named, T, now), {"t": TierNow(T, now)}, (), replace(base_rules, layers=layers, **rules)
    )


def burst_host(state):
    return host_of("e1", zone="ec2", state=state)


def moves(spec, cluster):
    """Return the moves of a plan that the checker accepts."""
    planned = plan(spec, cluster)
    assert violations(planned, spec, aftermath(spec, cluster)) == []
    return planned.moves


@pytest.mark.parametrize("hosts", [(), (burst_host(HostState.LOST),), (burst_host(HostState.CORDONED),)])
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "repair"},
        {"kind": "settle", "tier": "t"},
        {"kind": "scale", "tier": "t", "k": 2},
        {"kind": "shift", "shift": "usual"},
    ],
)
def test_a_burst_without_its_host_causes_no_handover(fields, hosts):
    cluster = cluster_of("h1", "h1", "h2", hosts=hosts, shifts={"usual": {"t": Numbers(target=2)}})
    assert moves(ChangeSpec(**fields), cluster) == ()


@pytest.mark.parametrize(("third", "state"), [("h3", HostState.LOST), ("e1", HostState.CORDONED)])
def test_a_migrated_worker_and_one_on_a_cordoned_burst_host_may_stay(third, state):
    cluster = cluster_of("h1", "h1", "h2", third, hosts=(burst_host(state),))
    assert plan(REPAIR, cluster).notes == (NO_DRIFT,)
    assert moves(ChangeSpec(kind="settle", tier="t"), cluster) == ()


@pytest.mark.parametrize(
    ("slots", "hosts", "states", "missing"),
    [
        (("h1", "h1"), (), "there is none", 2),
        (("h1", "h1"), (burst_host(HostState.LOST),), "e1 is lost", 2),
        (("h1", "h1", "e1"), (burst_host(HostState.CORDONED),), "e1 is cordoned", 1),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "migrate", "tier": "t", "to": "h1"},
        {"kind": "migrate", "tier": "t", "to": "anywhere"},
        {"kind": "scale", "tier": "t", "k": 2},
        {"kind": "repair", "tier": "t"},
        {"kind": "repair"},
    ],
)
def test_an_empty_change_names_the_burst_workers_that_are_unavailable(fields, slots, hosts, states, missing):
    entries = (BURST.entries[0].model_copy(update={"extra": 2}),)
    cluster = cluster_of("h1", *slots, hosts=hosts, layers=Layers(entries=entries), locality={"t": "h1"})
    planned = plan(ChangeSpec(**fields), cluster)
    assert planned.moves == ()
    assert planned.notes[0] == (
        f"{missing} more worker(s) of t cannot be placed at zone:ec2: no host there is up ({states}); "
        "start or return one, or end the burst with `sluice leave --tier t` and launch a new one with "
        "`sluice burst t 2`"
    )


def test_a_change_of_another_tier_has_no_note_on_a_burst():
    cluster = cluster_of("h1", "h1", "h2")
    other = TierNow(spec_of("u"), Placement(driver="h3", slots=("h3",)))
    cluster = replace(
        cluster,
        hosts=holding(cluster.hosts, other.spec, other.placement),
        tiers={**cluster.tiers, "u": other},
    )
    assert plan(ChangeSpec(kind="scale", tier="u", k=1), cluster).notes == ("nothing has to move",)


def test_a_burst_that_lacks_workers_is_drift_once_a_host_is_up():
    (move,) = moves(REPAIR, cluster_of("h1", "h1", "h2", hosts=(burst_host(HostState.UP),)))
    assert (move.why, move.after.slots) == ("has 2 workers, but should have 3", ("h1", "h2", "e1"))


@pytest.mark.parametrize(
    ("slots", "state", "k", "after"),
    [
        (("h1", "h2"), HostState.LOST, 1, 1),
        (("h1", "h2"), HostState.LOST, 3, 3),
        (("h1", "h2", "h3"), HostState.LOST, 2, 2),
        (("h1", "h2", "e1"), HostState.CORDONED, 3, 4),
        (("h1", "h2", "h3"), HostState.LOST, 3, None),
    ],
)
def test_a_persons_number_beside_an_unavailable_burst_belongs_to_the_tier(slots, state, k, after):
    planned_moves = moves(
        ChangeSpec(kind="scale", tier="t", k=k), cluster_of("h1", *slots, hosts=(burst_host(state),))
    )
    assert [len(move.after.slots) for move in planned_moves] == ([] if after is None else [after])


@pytest.mark.parametrize("slots", [("e1",), ("e1", "e1"), ("h1", "e1")])
def test_a_tier_whose_place_accepts_nothing_has_not_drifted(slots):
    at_home = {name: host_of(name, state=HostState.CORDONED) for name in ("h1", "h2", "h3", "h4")}
    for locality, hosts in (
        ({"t": "zone:ec2"}, (burst_host(HostState.CORDONED),)),
        ({}, (burst_host(HostState.UP), *at_home.values())),
    ):
        shares = {"t": Share(minimum=1, target=len(slots), maximum=4)}
        cluster = cluster_of("e1", *slots, hosts=hosts, layers=Layers(), locality=locality, shares=shares)
        assert plan(REPAIR, cluster).notes == (NO_DRIFT,)
        assert moves(REPAIR, cluster) == ()


def test_workers_packed_on_their_cordoned_place_stay_there():
    place = host_of("h1", labels=("fast",), state=HostState.CORDONED)
    cluster = cluster_of("h1", "h1", "h1", hosts=(place,), layers=Layers(), locality={"t": "label:fast"})
    assert moves(REPAIR, cluster) == ()
