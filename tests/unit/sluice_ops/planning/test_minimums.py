"""A tier below its minimum: which tiers give up workers for it, and how few."""

from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.shares import limits, target
from sluice_ops.planning.placement.solver import place_tier
from sluice_ops.planning.shortage.minimums import giving
from tests.unit.sluice_ops.planning.clusters import SMALL, checked_plan, host_of, spares, spec_of


@st.composite
def without_room(draw):
    """Draw tiers that fill their hosts with more than their minimum, batch beside them, and a tier
    that is down. No tier has a budget or a place.
    """
    hosts = {
        name: host_of(name, cpu=draw(st.integers(3, 6)) + 0.5, memory=65536)
        for name in ("h1", "h2", "h3")[: draw(st.integers(1, 3))]
    }
    tiers, shares = {}, {BATCH: Share(minimum=0, target=3, maximum=3)}
    for number in range(draw(st.integers(1, 4))):
        spec = spec_of(f"t{number}", mode=draw(st.sampled_from(Mode)), distance=draw(st.integers(0, 2)))
        spec = spec.model_copy(
            update={"partitions": draw(st.sampled_from([4, 8])), "state": draw(st.integers(0, 4)) == 0}
        )
        shares[spec.name] = Share(
            minimum=draw(st.integers(1, 2)), target=draw(st.integers(2, 5)), maximum=8, spare=draw(spares)
        )
        try:
            placement, placed = place_tier(spec, target(spec.name, Rules(shares=shares)), None, hosts)
        except RefusedError:
            continue
        hosts, tiers[spec.name] = placed.hosts, TierNow(spec, placement)
    batch = [name for name, host in sorted(hosts.items()) if host.fits(SMALL) and draw(st.booleans())]
    hosts = {name: host.holding(SMALL) if name in batch else host for name, host in hosts.items()}
    tiers["down"] = TierNow(spec_of("down"), None)
    shares["down"] = Share(minimum=draw(st.integers(1, 3)), target=4, maximum=8)
    return Cluster(hosts, tiers, tuple(batch), Rules(shares=shares, partitions=8, batch_quantum=SMALL))


def may_give(cluster):
    """Return the tiers that may give up workers, with the fewest workers that each may keep."""
    fewest_workers = {}
    for name, tier in cluster.tiers.items():
        if tier.placement is not None and not tier.spec.state:
            threaded = tier.spec.partitions / 4 if tier.spec.mode is Mode.REALTIME else 1
            fewest_workers[name] = int(max(threaded, limits(name, cluster.rules).minimum))
    return {name: k for name, k in fewest_workers.items() if k < len(cluster.tiers[name].placement.slots)}


def has_room(workers_kept, cluster):
    """Return whether the tier that is down has room when other tiers keep these numbers and batch
    nothing; counted without the solver.
    """
    free = {name: (host.free_cpu, host.free_memory) for name, host in cluster.hosts.items()}
    gone = [slot for name, k in workers_kept.items() for slot in cluster.tiers[name].placement.slots[k:]]
    for name in (*gone, *cluster.batch):
        free[name] = (free[name][0] + 1, free[name][1] + 1024)
    slots = limits("down", cluster.rules).minimum
    return any(
        cpu >= 0.5 and sum(int(free[name][0] - 0.5 * (name == driver) + 1e-6) for name in free) >= slots
        for driver, (cpu, _) in free.items()
    )


@settings(max_examples=300)
@given(without_room())
def test_the_fewest_workers_above_a_minimum_are_given_up_for_another_tier(
    cluster,
):
    able = may_give(cluster)
    gives = giving("down", [name for name in cluster.tiers if name != "down"], cluster)
    event(f"{len(gives)} give")
    if not gives:
        assert has_room({}, cluster) or not has_room(able, cluster)
        return
    assert has_room(gives, cluster)
    spares_only = {
        name: max(k, target(name, cluster.rules).slots)
        for name, k in able.items()
        if len(cluster.tiers[name].placement.slots) > target(name, cluster.rules).slots
    }
    if has_room(spares_only, cluster):
        able = spares_only
    for name, k in gives.items():
        has = len(cluster.tiers[name].placement.slots)
        assert able[name] <= k < has
        assert not has_room({**gives, name: k + 1}, cluster), "no tier gives up a worker in vain"
        spec = ChangeSpec(kind="settle", tier=name, k=k)
        planned = checked_plan(spec, cluster)
        assert [(move.tier, move.in_place, len(move.after.slots)) for move in planned.moves] == [
            (name, True, k)
        ]
        assert planned.predicted_gap_seconds == (2 if cluster.tiers[name].spec.mode is Mode.REALTIME else 0)
    if len(gives) > 1:
        assert not any(has_room({name: k}, cluster) for name, k in able.items()), (
            "no single tier gives up enough"
        )
    else:
        ((name, k),) = gives.items()
        fewest = len(cluster.tiers[name].placement.slots) - k
        for other, least in able.items():
            has = len(cluster.tiers[other].placement.slots)
            assert not any(
                has_room({other: has - less}, cluster) for less in range(1, min(fewest, has - least + 1))
            ), "no fewer workers are enough"


def giver(**more):
    """Return a tier that fills the host of another tier without room, and a second host that only
    the first tier may use.
    """
    spec, placement = spec_of("t"), Placement(driver="h1", slots=("h1",) * 4)
    hosts = holding(
        {"h1": host_of("h1", cpu=4.5), "h2": replace(host_of("h2"), only=frozenset({"t"}))}, spec, placement
    )
    shares = {"t": Share(minimum=1, target=4, maximum=8), "down": Share(minimum=1, target=2, maximum=8)}
    rules = Rules(
        shares=shares, partitions=8, batch_quantum=SMALL, dedicated={"h2": frozenset({"t"})}, **more
    )
    return Cluster(hosts, {"t": TierNow(spec, placement), "down": TierNow(spec_of("down"))}, (), rules)


def gives(k, cluster):
    spec = ChangeSpec(kind="settle", tier="t", k=k)
    return spec, aftermath(spec, cluster)


def test_the_check_rejects_giving_up_workers_without_or_beyond_need():
    cluster = giver()
    assert giving("down", ["t"], cluster) == {"t": 2}
    spec, after = gives(2, cluster)
    planned = plan(spec, cluster)
    (move,) = planned.moves
    assert (move.short, move.in_place, violations(planned, spec, after)) == (2, True, [])

    def problems_with(cluster=after, spec=spec, **changed):
        return violations(
            planned.model_copy(update={"moves": (move.model_copy(update=changed),)}), spec, cluster
        )

    assert problems_with(after=Placement(driver="h1", slots=("h1",)), short=3) == [
        "t would continue with 1 worker instead of 2"
    ]
    assert "t would be handed over, but should release workers in place" in problems_with(in_place=False)
    down_unwanted = replace(after, tiers={**after.tiers, "down": replace(after.tiers["down"], wanted=False)})
    assert problems_with(down_unwanted) == [
        "t would move, but is already as it should be",
        "t would release workers on hosts where no tier may be that lacks some of its minimum",
    ]
    elsewhere = replace(after, rules=replace(after.rules, dedicated={"h1": frozenset({"t"})}))
    assert (
        "t would release workers on hosts where no tier may be that lacks some of its minimum"
        in problems_with(elsewhere)
    )
    few = replace(
        after,
        rules=replace(after.rules, shares={**after.rules.shares, "t": Share(minimum=3, target=4, maximum=8)}),
    )
    assert "t would have 2 slots, below its minimum of 3" in problems_with(few)
    budget = replace(after, rules=replace(after.rules, budget={"t": 1}))
    assert "t would be 2 slots short of its share, but its budget allows 1 to be missing" in problems_with(
        budget
    )


@pytest.mark.parametrize(
    ("near", "far", "given_up"), [(1, 2, {"far": 1}), (2, 1, {"near": 1}), (1, 1, {"far": 1})]
)
def test_the_tier_that_gives_up_the_fewest_is_chosen_then_the_furthest_one(near, far, given_up):
    hosts, tiers, shares = (
        {"h1": host_of("h1", cpu=3 * (near + far) + 1)},
        {},
        {"down": Share(minimum=2, target=2)},
    )
    for distance, (name, cpu) in enumerate({"near": near, "far": far}.items()):
        spec, placement = (
            spec_of(name, distance=distance, quantum=Quantum(cpu=cpu, memory=512)),
            Placement(driver="h1", slots=("h1",) * 3),
        )
        hosts, tiers[name] = holding(hosts, spec, placement), TierNow(spec, placement)
        shares[name] = Share(minimum=1, target=3, maximum=8)
    tiers["down"] = TierNow(spec_of("down", quantum=Quantum(cpu=0.75, memory=256)))
    if near == far:
        tiers["down"] = TierNow(spec_of("down", quantum=Quantum(cpu=0.25, memory=256)))
    cluster = Cluster(hosts, tiers, (), Rules(shares=shares, partitions=8, batch_quantum=SMALL))
    assert {name: 3 - k for name, k in giving("down", ["near", "far"], cluster).items()} == given_up


def test_a_tier_that_can_no_longer_release_workers_is_not_handed_over():
    cluster = giver()
    paused = replace(cluster, tiers={**cluster.tiers, "t": replace(cluster.tiers["t"], paused=True)})
    with pytest.raises(RefusedError, match="t can no longer release workers in place"):
        plan(ChangeSpec(kind="settle", tier="t", k=2), paused)


def test_no_worker_is_given_up_once_no_tier_lacks_workers():
    cluster = giver()
    well = replace(cluster, tiers={**cluster.tiers, "down": replace(cluster.tiers["down"], wanted=False)})
    planned = plan(ChangeSpec(kind="settle", tier="t", k=2), well)
    assert planned.moves == ()


@pytest.mark.parametrize(("k", "more"), [(2, {}), (4, {"budget": {"t": 0}}), (2, {"budget": {"t": 2}})])
def test_giving_up_workers_respects_the_budget(k, more):
    assert giving("down", ["t"], giver(**more)) == ({"t": k} if k < 4 else {})


def test_spares_are_given_up_before_workers_that_work():
    spec, other = spec_of("with-spare", distance=0), spec_of("without", distance=2)
    shares = {
        "with-spare": Share(minimum=1, target=2, maximum=8, spare=1),
        "without": Share(minimum=1, target=3, maximum=8),
        "down": Share(minimum=1, target=1, maximum=8),
    }
    hosts, tiers = {"h1": host_of("h1", cpu=7.5, memory=65536)}, {"down": TierNow(spec_of("down"), None)}
    for each in (spec, other):
        placement, placed = place_tier(each, target(each.name, Rules(shares=shares)), None, hosts)
        hosts, tiers[each.name] = placed.hosts, TierNow(each, placement)
    cluster = Cluster(hosts, tiers, (), Rules(shares=shares, partitions=8, batch_quantum=SMALL))
    assert giving("down", ["with-spare", "without"], cluster) == {"with-spare": 2}
    shares = {**shares, "with-spare": Share(minimum=1, target=3, maximum=8)}
    all_work = replace(cluster, rules=Rules(shares=shares, partitions=8, batch_quantum=SMALL))
    assert giving("down", ["with-spare", "without"], all_work) == {"without": 2}
