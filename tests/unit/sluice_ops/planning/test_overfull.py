"""A host with less capacity than its load: no plan adds to it, moves leave it, and other changes
succeed.
"""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Share
from sluice_ops.planning.changes.plan import aftermath, plan
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
from tests.unit.sluice_ops.planning.clusters import (
    SMALL,
    checked_plan,
    host_of,
    overfull_clusters,
    spec_of,
    with_workers,
)

SETTINGS = settings(max_examples=60)


def specs(draw, cluster):
    """Draw a change of any kind that moves tiers."""
    host, tier = (st.sampled_from(sorted(names)) for names in (cluster.hosts, cluster.tiers))
    changes = [
        st.builds(ChangeSpec, kind=st.just("drain"), host=host),
        st.builds(ChangeSpec, kind=st.just("scale"), tier=tier, k=st.integers(1, 4)),
        st.builds(ChangeSpec, kind=st.just("migrate"), tier=tier, to=host),
        st.just(ChangeSpec(kind="repair")),
    ]
    return draw(st.one_of(changes))


@SETTINGS
@given(overfull_clusters(), st.data())
def test_no_plan_adds_to_an_overfull_host_and_the_checker_agrees(drawn, data):
    _, cluster, full = drawn
    spec = specs(data.draw, cluster)
    planned = checked_plan(spec, cluster)
    if planned is None:
        return
    hosts = cluster.hosts
    for move in planned.moves:
        tier = cluster.tiers[move.tier].spec
        hosts = moved(hosts, tier, move.before, move.after)
        assert overfull(hosts, cluster.hosts) == []
    assert hosts[full].used_memory <= cluster.hosts[full].used_memory


@SETTINGS
@given(overfull_clusters(), st.data())
def test_a_change_that_does_not_touch_the_overfull_host_succeeds(drawn, data):
    before, cluster, full = drawn
    name = data.draw(st.sampled_from(with_workers(cluster) or sorted(cluster.tiers)))
    spec = ChangeSpec(kind="scale", tier=name, k=data.draw(st.integers(1, 4)))
    try:
        planned = plan(spec, before)
    except RefusedError:
        assume(False)
    assume(
        not any(full in placement.hosts for move in planned.moves for placement in (move.before, move.after))
    )
    assert violations(planned, spec, aftermath(spec, cluster)) == []
    assert [move.tier for move in plan(spec, cluster).moves] == [move.tier for move in planned.moves]


@SETTINGS
@given(overfull_clusters())
def test_a_repair_moves_the_fewest_units_off_an_overfull_host(drawn):
    _, cluster, full = drawn
    planned = plan(ChangeSpec(kind="repair"), cluster)
    hosts = cluster.hosts
    for move in planned.moves:
        if full in move.before.hosts and "units hold more than the capacity" in move.why:
            assert hosts[full].overfull, "a repair moves no unit off a host that is no longer overfull"
        hosts = moved(hosts, cluster.tiers[move.tier].spec, move.before, move.after)
    if hosts[full].overfull:
        left = [
            name
            for name, tier in cluster.tiers.items()
            if full in tier.placement.hosts and name not in {move.tier for move in planned.moves}
        ]
        assert all(
            any(
                note.startswith(f"{name} is on {full}, where units hold more than the capacity")
                for note in planned.notes
            )
            for name in left
        )


@pytest.fixture
def cluster():
    hosts = {name: host_of(name, cpu=4, memory=8192) for name in ("h1", "h2", "h3")}
    tiers = {}
    for name, host in (("t0", "h1"), ("t1", "h1"), ("t2", "h2")):
        spec, placement = spec_of(name), Placement(driver=host, slots=(host,))
        hosts, tiers[name] = holding(hosts, spec, placement), TierNow(spec, placement)
    hosts["h1"] = replace(hosts["h1"], capacity=Capacity(cpu=4, memory=2048))
    return Cluster(
        hosts, tiers, (), Rules(shares={name: Share(minimum=1, target=1, maximum=2) for name in tiers})
    )


def test_a_drain_of_another_host_avoids_the_overfull_host(cluster):
    spec = ChangeSpec(kind="drain", host="h2")
    planned = plan(spec, cluster)
    assert [move.after.hosts for move in planned.moves] == [{"h3"}]
    assert violations(planned, spec, aftermath(spec, cluster)) == []


def test_a_repair_moves_one_tier_if_that_is_enough(cluster):
    planned = plan(ChangeSpec(kind="repair"), cluster)
    assert [(move.tier, move.why) for move in planned.moves] == [
        ("t0", "is on h1, where units hold more than the capacity")
    ]


def test_batch_gives_back_slots_of_the_overfull_host_first(cluster):
    share = {"batch": Share(minimum=0, target=2, maximum=2)}
    rules = replace(cluster.rules, shares=cluster.rules.shares | share, batch_quantum=SMALL)
    hosts = {
        name: host.holding(SMALL)
        if name in {"h1", "h2"}
        else replace(host, capacity=Capacity(cpu=0.1, memory=1))
        for name, host in cluster.hosts.items()
    }
    now = replace(cluster, hosts=hosts, batch=("h1", "h2"), rules=rules)
    planned = plan(ChangeSpec(kind="scale", tier="batch", k=1), now)
    assert planned.batch_kept == ("h2",)


def test_the_checker_rejects_a_move_onto_an_overfull_host(cluster):
    spec = ChangeSpec(kind="migrate", tier="t2", to="h3")
    planned = plan(spec, cluster)
    (move,) = planned.moves
    onto_overfull = move.model_copy(update={"after": Placement(driver="h1", slots=("h1",))})
    problems = violations(
        planned.model_copy(update={"moves": (onto_overfull,)}), spec, aftermath(spec, cluster)
    )
    assert any(problem.startswith("while t2 is prepared: h1 holds") for problem in problems)
