"""Rules that keep tiers apart: most workers in one place, separate tiers, dedicated hosts, and
budgets.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Move, Plan
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Share
from sluice_ops.model.spread import Spread
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import Target, target
from sluice_ops.planning.placement.solver import place, place_tier
from sluice_ops.planning.shortage.fitting import place_lost
from tests.unit.sluice_ops.planning.clusters import (
    SMALL,
    apart,
    checked_plan,
    clusters,
    crowded,
    dedicated,
    host_of,
    spec_of,
)

SETTINGS = settings(max_examples=100)
WORDS = {
    "host": lambda host: host.name,
    "rack": lambda host: (host.zone, host.rack or host.name),
    "zone": lambda host: host.zone,
}


def broken_rules(placements, cluster):
    """Return each rule that these placements break, counted without the planner."""
    rules, hosts = cluster.rules, cluster.hosts
    violated = []
    for name, placement in placements.items():
        for kind, most in rules.spread.get(name) or ():
            counted = Counter(WORDS[kind](hosts[slot]) for slot in placement.slots)
            if most is not None and max(counted.values(), default=0) > most:
                violated.append((name, kind))
        for host in placement.hosts:
            named = [tenants for place, tenants in rules.dedicated.items() if hosts[host].matches(place)]
            if named and not any(name in tenants for tenants in named):
                violated.append((name, "dedicated"))
        others = [
            other
            for group in rules.separate
            if name in group
            for other in group - {name}
            if other in placements
        ]
        violated += [(name, other) for other in others if placements[other].hosts & placement.hosts]
    return violated


def placements(cluster):
    return {name: tier.placement for name, tier in cluster.tiers.items()}


@st.composite
def change_specs(draw, cluster):
    kind = draw(st.sampled_from(["drain", "scale", "migrate"]))
    if kind == "drain":
        return ChangeSpec(kind=kind, host=draw(st.sampled_from(sorted(cluster.hosts))))
    name = draw(st.sampled_from(sorted(cluster.tiers)))
    if kind == "scale":
        return ChangeSpec(kind=kind, tier=name, k=draw(st.integers(1, 4)))
    return ChangeSpec(
        kind=kind, tier=name, to=draw(st.sampled_from(["zone:onprem", "zone:annex", "rack:r1", "h1"]))
    )


@SETTINGS
@given(clusters(rules=apart()), st.data())
def test_no_plan_breaks_a_rule_and_the_checker_agrees(cluster, data):
    assert broken_rules(placements(cluster), cluster) == []
    assume(cluster.tiers)
    spec = data.draw(change_specs(cluster))
    planned = checked_plan(spec, cluster)
    if planned is None:
        return
    assert (
        broken_rules({**placements(cluster), **{move.tier: move.after for move in planned.moves}}, cluster)
        == []
    )


@SETTINGS
@given(clusters(rules=apart()))
def test_a_tier_placed_under_the_rules_has_not_drifted(cluster):
    planned = plan(ChangeSpec(kind="repair"), cluster)
    assert planned.moves == ()
    assert planned.notes[-1] == nothing_to_repair(planned)


def nothing_to_repair(planned):
    """Return the last note of a repair that moves nothing; pins that cannot be filled are told."""
    told = any(" pinned workers on " in note for note in planned.notes)
    return "nothing has to move" if told else "nothing has drifted"


@SETTINGS
@given(clusters(), apart())
def test_a_repair_moves_only_tiers_that_break_new_rules(cluster, rules):
    rules = replace(rules, shares=cluster.rules.shares, light=cluster.rules.light)
    hosts = dedicated(cluster.hosts, rules)
    cluster = replace(cluster, hosts=hosts, rules=rules)
    before = placements(cluster)
    planned = plan(ChangeSpec(kind="repair"), cluster)
    assert violations(planned, ChangeSpec(kind="repair"), cluster) == []
    for move in planned.moves:
        assert move.why
        assert move.after != move.before
    left = {**before, **{move.tier: move.after for move in planned.moves}}
    still_broken = {name for name, *_ in broken_rules(left, cluster)}
    assert still_broken.isdisjoint(move.tier for move in planned.moves)
    for name in still_broken:
        assert any(note.startswith(f"{name} ") and "cannot be repaired now" in note for note in planned.notes)
    if not planned.moves and not still_broken:
        assert planned.notes[-1] == nothing_to_repair(planned)


@SETTINGS
@given(clusters(), st.data())
def test_a_repair_of_the_spread_moves_as_few_workers_as_can_be(cluster, data):
    assume(cluster.tiers)
    name = data.draw(st.sampled_from(sorted(cluster.tiers)))
    now = cluster.tiers[name].placement
    rules = replace(cluster.rules, spread={name: Spread(host=1)})
    roomy = replace(
        cluster,
        hosts={host.name: replace(host, used_cpu=0.0, used_memory=0) for host in cluster.hosts.values()},
        rules=rules,
    )
    needed = len(now.slots) - len(set(now.slots))
    planned = plan(ChangeSpec(kind="repair", tier=name), roomy)
    if len(roomy.hosts) < len(now.slots):
        assert planned.moves == ()
        return
    assert [move.moved for move in planned.moves] == ([needed] if needed else [])


@SETTINGS
@given(clusters(rules=apart()), st.integers(0, 3))
def test_lost_slots_are_placed_under_the_rules(cluster, lost):
    assume(cluster.tiers)
    name, tier = min(cluster.tiers.items())
    alive = tier.placement.slots[lost:]
    new_slots = place_lost(tier.spec, len(tier.placement.slots) - len(alive), alive, cluster)
    assert (
        broken_rules(
            {**placements(cluster), name: tier.placement.model_copy(update={"slots": (*alive, *new_slots)})},
            cluster,
        )
        == []
    )


def refusal(spec, cluster):
    """Return the reason of a refusal, or an empty text if the change is not refused."""
    try:
        plan(spec, cluster)
    except RefusedError as refused:
        return str(refused)
    return ""


@st.composite
def budgeted_drains(draw):
    cluster = draw(crowded())
    budget = {name: draw(st.integers(0, 2)) for name in cluster.tiers}
    spec = ChangeSpec(kind="drain", host=draw(st.sampled_from(sorted(cluster.hosts))))
    return spec, replace(cluster, rules=replace(cluster.rules, budget=budget))


@SETTINGS
@given(budgeted_drains())
def test_no_drain_leaves_a_tier_less_than_its_budget_allows(drawn):
    spec, cluster = drawn
    assume(not refusal(spec, cluster))
    for move in plan(spec, cluster).moves:
        if cluster.tiers[move.tier].awaits_upgrade:
            continue  # it has no worker yet that it could lose
        spare = target(move.tier, cluster.rules).spare
        allowed = cluster.rules.budget[move.tier] + spare
        assert move.short <= allowed, "spares do not count against the budget"
        if move.short:
            few = move.model_copy(update={"short": allowed + 1})
            assert any(
                "its budget allows" in problem
                for problem in violations(Plan(moves=(few,)), spec, aftermath(spec, cluster))
            )


@SETTINGS
@given(budgeted_drains())
def test_a_drain_refused_for_a_budget_alone_names_the_budget(drawn):
    spec, cluster = drawn
    reason = refusal(spec, cluster)
    assert (
        not reason
        or refusal(spec, replace(cluster, rules=replace(cluster.rules, budget={})))
        or "because budget." in reason
    )


def test_a_tier_below_its_disruption_budget_may_still_move():
    spec = spec_of("t")
    now = Placement(driver="h1", slots=("h1",))
    hosts = holding({"h1": host_of("h1", cpu=4), "h2": host_of("h2", cpu=2.5)}, spec, now)
    rules = Rules(shares={"t": Share(minimum=1, target=4, maximum=4)}, partitions=8, budget={"t": 1})
    planned = plan(ChangeSpec(kind="drain", host="h1"), Cluster(hosts, {"t": TierNow(spec, now)}, (), rules))
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(2, 2)]


def test_missing_workers_count_against_the_budget_when_workers_are_paused():
    now = Placement(driver="h1", slots=("h1", "h1"))
    tier = TierNow(spec_of("t"), now, workers=("slot-t-1-0", "slot-t-1-1"))
    rules = Rules(shares={"t": Share(minimum=1, target=3, maximum=4)}, partitions=8, budget={"t": 1})
    pause = ChangeSpec(kind="pause", workers=("slot-t-1-0",))
    cluster = Cluster({"h1": host_of("h1")}, {"t": tier}, (), rules)
    assert "1 of its 3 workers would work, but budget.t allows 1 to be missing" in refusal(pause, cluster)
    assert not refusal(pause, replace(cluster, rules=replace(rules, budget={"t": 2})))


def test_a_new_host_is_drift_and_its_repair_moves_one_worker():
    spec = spec_of("t")
    placement, placed = place_tier(spec, Target(3), None, {name: host_of(name) for name in ("h1", "h2")})
    rules = Rules(shares={"t": Share(minimum=1, target=3, maximum=4)}, partitions=8)
    before = Cluster(placed.hosts, {"t": TierNow(spec, placement)}, (), rules)
    assert plan(ChangeSpec(kind="repair"), before).moves == ()
    (move,) = plan(ChangeSpec(kind="repair"), before.with_hosts({**placed.hosts, "h3": host_of("h3")})).moves
    fullest = max(placement.slots, key=placement.slots.count)
    assert move.why == f"has 2 workers on {fullest}, but there is room to have at most 1 on each host"
    assert (sorted(move.after.slots), move.moved) == (["h1", "h2", "h3"], 1)


def test_a_rule_that_names_no_tier_gets_a_note():
    rules = Rules(
        shares={"t": Share()},
        separate=(frozenset({"t", "u"}),),
        budget={"v": 1},
        dedicated={"h1": frozenset({"t", "w", BATCH})},
    )
    spec = spec_of("t")
    placement, placed = place_tier(spec, Target(1), None, {"h1": host_of("h1")})
    planned = plan(
        ChangeSpec(kind="repair"), Cluster(placed.hosts, {"t": TierNow(spec, placement)}, (), rules)
    )
    assert planned.notes == (
        'separate in the site file names "u", which is no tier',
        'dedicated.h1 in the site file names "w", which is no tier',
        'budget in the site file names "v", which is no tier',
        "nothing has drifted",
    )


def test_one_of_two_separate_tiers_on_a_host_moves():
    hosts, tiers = {name: host_of(name) for name in ("h1", "h2")}, {}
    for name in ("t0", "t1"):
        spec = spec_of(name, distance=len(tiers))
        placement = Placement(driver="h1", slots=("h1",))
        hosts = holding(hosts, spec, placement)
        tiers[name] = TierNow(spec, placement)
    rules = Rules(shares={"t0": Share(), "t1": Share()}, separate=(frozenset({"t0", "t1"}),))
    cluster = Cluster(hosts, tiers, (), rules)
    (move,) = plan(ChangeSpec(kind="repair"), cluster).moves
    assert (move.tier, move.after.hosts) == ("t0", {"h2"})
    assert move.why == "is on h1 with t1, from which it has to be separate"
    with pytest.raises(
        RefusedError,
        match="no host may take it: h1 holds t1, from which it has to be separate; return or add a host",
    ):
        place_tier(tiers["t0"].spec, target("t0", rules), None, {"h1": hosts["h1"]})


def test_a_tier_placed_anywhere_has_drifted_once_its_place_is_back():
    spec = spec_of("t")
    hosts = {"h1": host_of("h1", labels=("fast",), state=HostState.CORDONED), "h2": host_of("h2")}
    rules = Rules(shares={"t": Share()}, locality={"t": "label:fast"})
    placement, placed = place_tier(spec, target("t", rules), None, hosts)
    cluster = Cluster(placed.hosts, {"t": TierNow(spec, placement)}, (), rules)
    assert plan(ChangeSpec(kind="repair"), cluster).notes == ("nothing has drifted",)
    (move,) = plan(ChangeSpec(kind="repair"), cluster.with_state("h1", HostState.UP)).moves
    assert move.after.hosts == {"h1"}
    assert "has to be at label:fast, and has workers on h2" in move.why


def test_a_dedicated_host_takes_only_its_tenants():
    rules = Rules(dedicated={"rack:r1": frozenset({"t0"}), "h2": frozenset({"t1"})})
    hosts = dedicated(
        {"h1": host_of("h1", rack="r1"), "h2": host_of("h2", rack="r1"), "h3": host_of("h3")}, rules
    )
    assert [hosts[name].only for name in hosts] == [{"t0"}, {"t0", "t1"}, None]
    assert place([Request("t2", 8, SMALL)], hosts).where["t2", "slots"] == ("h3",) * 8
    assert place([Request(BATCH, 1, SMALL)], hosts).where[BATCH, "slots"] == ("h3",)
    with pytest.raises(
        RefusedError,
        match=r"no host at rack:r1 may take it: h1 is dedicated to t0, h2 is dedicated to t0, t1; return",
    ):
        place([Request("t2", 1, SMALL, "rack:r1")], hosts)


def test_a_refusal_names_the_limit_that_leaves_no_room():
    hosts = {"h1": host_of("h1"), "h2": host_of("h2")}
    with pytest.raises(RefusedError) as refused:
        place_tier(spec_of("t"), Target(3, spread=Spread(host=1, zone=4)), None, hosts)
    assert (
        "1 of 3 units (1 cpu, 1024 MiB each) find no room, with at most 1 on a host, 4 in a zone (spread.t)"
        in str(refused.value)
    )


def test_a_bursts_workers_count_for_the_spread():
    hosts = {name: host_of(name, labels=("fast",)) for name in ("h1", "h2", "h3")}
    placement, _ = place_tier(
        spec_of("t"), Target(2, extra=1, extra_to="label:fast", spread=Spread(host=1)), None, hosts
    )
    assert sorted(placement.slots) == ["h1", "h2", "h3"]


def test_the_checker_reports_each_broken_rule():
    spec = spec_of("t0")
    now = Placement(driver="h1", slots=("h1", "h1"))
    rules = Rules(
        shares={"t0": Share(minimum=1, target=2, maximum=2), "t1": Share()},
        spread={"t0": Spread(rack=1)},
        separate=(frozenset({"t0", "t1"}),),
        dedicated={"h3": frozenset({"t1"})},
    )
    hosts = holding({name: host_of(name, rack="r1") for name in ("h1", "h2", "h3")}, spec, now)
    hosts = holding(hosts, spec_of("t1"), Placement(driver="h2", slots=("h2",)))
    tiers = {"t0": TierNow(spec, now), "t1": TierNow(spec_of("t1"), Placement(driver="h2", slots=("h2",)))}
    bad_move = Move(tier="t0", before=now, after=Placement(driver="h2", slots=("h2", "h3")))
    assert violations(
        Plan(moves=(bad_move,)),
        ChangeSpec(kind="repair"),
        Cluster(dedicated(hosts, rules), tiers, (), rules),
    ) == [
        "t0 would be on h3, which is dedicated to others",
        "t0 would have 2 workers in rack onprem/r1, but may have 1",
        "while t0 is prepared: h2 would hold t0 beside t1, from which it has to be separate",
    ]
