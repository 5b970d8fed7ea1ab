"""The checker accepts a correct plan.

It rejects a plan with one wrong detail, and a plan that leaves the change undone.
"""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec, Move, Plan
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.kinds.drain import Drain
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import SMALL, clusters, crowded, host_of, spec_of

SETTINGS = settings(max_examples=80)
HOSTS = {
    **{
        name: host_of(name, labels=("fast",) if name in {"h1", "h2"} else ())
        for name in ("h1", "h2", "h3", "h4")
    },
    **{name: host_of(name, zone="ec2") for name in ("e1", "e2")},
}
SHARES = {
    "t": Share(minimum=1, target=2, maximum=4),
    "u": Share(minimum=1, target=1, maximum=4),
    BATCH: Share(minimum=1, target=2, maximum=4),
}
RULES = Rules(
    shares=SHARES,
    shifts={"night": {"t": Numbers(target=3), BATCH: Numbers(target=3)}},
    partitions=8,
    batch_quantum=SMALL,
)


def cluster_of(rules=RULES, hosts=HOSTS, **tiers):
    """Return a cluster with these placements, and two slots of batch, on h3 and h4."""
    tiers_now = {}
    for distance, (name, now) in enumerate(sorted(tiers.items())):
        spec = spec_of(name, distance=distance)
        hosts = holding(hosts, spec, now)
        tiers_now[name] = TierNow(spec, now, release="r1-0")
    hosts = {**hosts, **{name: hosts[name].holding(SMALL) for name in ("h3", "h4")}}
    return Cluster(hosts, tiers_now, ("h3", "h4"), rules)


T, U = Placement(driver="h1", slots=("h1", "h2")), Placement(driver="h2", slots=("h2",))
ON_BURST = Placement(driver="e1", slots=("e1", "e1"))
BURST = Layers(
    entries=(LayerEntry(tenant="t", layer=Layer.PERSON, extra=1, extra_to="zone:ec2", owner="anna", at=0.0),)
)


def problems(planned, spec, cluster, **changed):
    return violations(planned.model_copy(update=changed), spec, aftermath(spec, cluster))


def make_plan(cluster, **fields):
    """Return a change, its plan and the cluster; the checker accepts the plan."""
    spec = ChangeSpec(**fields)
    planned = plan(spec, cluster)
    assert problems(planned, spec, cluster) == []
    return planned, spec, cluster


@pytest.mark.parametrize(
    ("fields", "tiers", "expected"),
    [
        (
            {"kind": "drain", "host": "h2"},
            {},
            ["t would not move, but is on h2", "u would not move, but is on h2"],
        ),
        ({"kind": "reboot", "host": "h1"}, {}, ["t would not move, but is on h1"]),
        ({"kind": "leave"}, {"t": ON_BURST}, ["t would not move, but is on e1"]),
        (
            {"kind": "migrate", "tier": "t", "to": "h4"},
            {},
            ["t would not move, but has to be at h4, not with its driver on h1"],
        ),
        ({"kind": "scale", "tier": "t", "k": 3}, {}, ["t would not move, but has 2 slots instead of 3"]),
        ({"kind": "burst", "tier": "t", "k": 1}, {}, ["t would not move, but has 2 slots instead of 3"]),
        ({"kind": "shift", "shift": "night"}, {}, ["t would not move, but has 2 slots instead of 3"]),
        (
            {"kind": "repair"},
            {"t": Placement(driver="e1", slots=("h1", "h2"))},
            ["t would not move, but has to be at the site's own hosts, not with its driver on e1"],
        ),
    ],
)
def test_a_plan_that_leaves_the_change_undone_is_rejected(fields, tiers, expected):
    planned, spec, cluster = make_plan(cluster_of(**{"t": T, "u": U} | tiers), **fields)
    assert problems(planned, spec, cluster, moves=(), notes=planned.notes) == expected


def test_an_upgrade_or_repartition_that_moves_nothing_is_rejected():
    cluster = cluster_of(t=T, u=U)
    for fields, expected in (
        ({"kind": "upgrade", "tier": "t", "release": "r2-0"}, "t would not move, but runs r1-0"),
        (
            {"kind": "repartition", "tier": "t", "partitions": 6},
            "t would not move, but is spread over 8 partitions",
        ),
    ):
        tiers = {**cluster.tiers, "t": replace(cluster.tiers["t"], partitions=8)}
        nothing = Plan(batch_slots=cluster.batch, batch_kept=cluster.batch)
        assert violations(nothing, ChangeSpec(**fields), replace(cluster, tiers=tiers)) == [expected]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "drain", "host": "h3"},
        {"kind": "scale", "tier": "u", "k": 2},
        {"kind": "migrate", "tier": "u", "to": "h2"},
    ],
)
def test_a_needless_move_is_rejected(fields):
    planned, spec, cluster = make_plan(cluster_of(t=T, u=U), **fields)
    needless = Move(tier="t", before=T, after=Placement(driver="h1", slots=("h1", "h1")))
    assert any(
        problem.startswith("t would move, but ")
        for problem in problems(planned, spec, cluster, moves=(needless, *planned.moves))
    )


def test_a_change_of_placement_rules_moves_nothing():
    cluster = cluster_of(t=T, u=U)
    for kind, host in (("cordon", "h1"), ("return", "h1"), ("pause", None)):
        planned, spec, _ = make_plan(cluster, kind=kind, host=host)
        moved = Move(tier="t", before=T, after=T)
        assert problems(planned, spec, cluster, moves=(moved,)) == [
            f"t would move, but a {kind} moves nothing"
        ]


def test_a_tier_on_a_removed_host_may_move_to_its_replacement():
    cluster = cluster_of(t=Placement(driver="h3", slots=("h3", "h4")))
    without = cluster.with_hosts({name: host for name, host in cluster.hosts.items() if name != "h3"})
    planned, *_ = make_plan(replace(without, batch=("h4",)), kind="migrate", tier="t", to="h4")
    assert [move.after.hosts for move in planned.moves] == [{"h4"}]


def drained(rules=RULES, **hosts):
    """Return the drain of h2, where t has a worker."""
    return make_plan(cluster_of(rules, {**HOSTS, **hosts}, t=T), kind="drain", host="h2")


def changed(planned, **after):
    (move,) = planned.moves
    return (move.model_copy(update={"after": move.after.model_copy(update=after)}),)


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ({"slots": ("h1", "h2")}, "t would be on h2, which is draining"),
        ({"driver": "h2"}, "t would be on h2, which is draining"),
        ({"slots": ("h1", "h9")}, "t would be on h9, which is unknown"),
        ({"slots": ("h1", "e1")}, "t has to be at the site's own hosts, not on e1"),
        ({"driver": "e1"}, "t has to be at the site's own hosts, not with its driver on e1"),
        ({"slots": ("h1",)}, "t would have 1 slot instead of 2"),
        ({"slots": ("h1", "h1", "h1")}, "t would have 3 slots instead of 2"),
    ],
)
def test_a_tier_on_a_forbidden_host_is_rejected(after, problem):
    planned, spec, cluster = drained()
    assert problem in problems(planned, spec, cluster, moves=changed(planned, **after))


def test_a_wrong_origin_an_unknown_tier_and_a_double_move_are_rejected():
    planned, spec, cluster = drained()
    (move,) = planned.moves
    assert problems(planned, spec, cluster, moves=(move, move)) == ["a tier would move twice"]
    assert "x would move, but is no tier" in problems(
        planned, spec, cluster, moves=(move.model_copy(update={"tier": "x"}),)
    )
    assert "t is not where the plan has it" in problems(
        planned, spec, cluster, moves=(move.model_copy(update={"before": U}),)
    )


def test_a_scale_to_part_of_the_number_is_rejected():
    planned, spec, cluster = make_plan(cluster_of(t=T), kind="scale", tier="t", k=4)
    (move,) = planned.moves
    few = move.model_copy(update={"after": Placement(driver="h1", slots=("h1", "h2", "h3")), "short": 1})
    assert "t would be 1 slot short, but a scale is done as a whole or not at all" in problems(
        planned, spec, cluster, moves=(few,)
    )


def test_too_few_threads_for_a_realtime_tiers_partitions_are_rejected():
    cluster = cluster_of(t=T)
    tier = cluster.tiers["t"]
    cluster = replace(
        cluster, tiers={"t": replace(tier, spec=tier.spec.model_copy(update={"mode": Mode.REALTIME}))}
    )
    spec = ChangeSpec(kind="drain", host="h2")
    few = Move(tier="t", before=T, after=Placement(driver="h1", slots=("h1",)), short=1)
    assert "t would have 1 slot, below its minimum of 2" in problems(
        plan(spec, cluster), spec, cluster, moves=(few,)
    )


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ({"slots": ("h1", "h2", "h3")}, "t has to have 1 worker at zone:ec2, not 0"),
        ({"slots": ("h1", "e1", "e2")}, "t has to be at the site's own hosts, not on e1, e2"),
        ({"driver": "e1"}, "t has to be at the site's own hosts, not with its driver on e1"),
    ],
)
def test_a_burst_places_exactly_its_workers_at_its_place(after, problem):
    planned, spec, cluster = make_plan(cluster_of(t=T), kind="burst", tier="t", k=1)
    assert problem in problems(planned, spec, cluster, moves=changed(planned, **after))


def test_a_burst_without_hosts_does_not_stop_a_drain():
    hosts = {
        name: replace(host, state=HostState.LOST) if host.zone == "ec2" else host
        for name, host in HOSTS.items()
    }
    planned, _, _ = make_plan(cluster_of(replace(RULES, layers=BURST), hosts, t=T), kind="drain", host="h2")
    assert [
        note
        for note in planned.notes
        if note.startswith("1 more worker(s) of t cannot be placed at zone:ec2: no host there is up (")
    ]


def test_a_tier_that_stays_on_burst_hosts_after_a_leave_is_rejected():
    planned, spec, cluster = make_plan(cluster_of(t=ON_BURST), kind="leave")
    stays = changed(planned, driver="e2")
    assert "t would stay on e2, which it has to leave" in problems(planned, spec, cluster, moves=stays)


def test_a_tier_placed_on_burst_hosts_does_not_bind_other_tiers():
    rules = replace(RULES, locality={"u": "zone:ec2"})
    planned, _, _ = make_plan(
        cluster_of(rules, t=ON_BURST, u=Placement(driver="e2", slots=("e2",))), kind="leave"
    )
    assert {move.tier: {HOSTS[name].zone for name in move.after.hosts} for move in planned.moves} == {
        "t": {"onprem"}
    }
    assert any(note.startswith("u stays") for note in planned.notes), planned.notes


def test_a_burst_without_hosts_does_not_stop_a_shift():
    hosts = {
        name: replace(host, state=HostState.LOST) if host.zone == "ec2" else host
        for name, host in HOSTS.items()
    }
    shift = replace(RULES, layers=BURST, shifts={"night": {"u": Numbers(target=2)}})
    make_plan(cluster_of(shift, hosts, t=T, u=U), kind="shift", shift="night")


@pytest.mark.parametrize(
    ("host", "state", "problem"),
    [
        ("h2", HostState.UP, "batch would be on h2, which takes no new units"),
        ("h1", HostState.CORDONED, "batch would be on h1, which takes no new units"),
        ("h9", HostState.UP, "batch would be on h9, which is unknown"),
        ("e1", HostState.UP, "batch has to be at the site's own hosts, not on e1"),
    ],
)
def test_a_batch_slot_on_a_forbidden_host_is_rejected(host, state, problem):
    shares = {**SHARES, BATCH: Share(minimum=1, target=3, maximum=4)}
    planned, spec, cluster = drained(replace(RULES, shares=shares))
    if state is not HostState.UP:
        cluster = cluster.with_state(host, state)
    assert problem in problems(planned, spec, cluster, batch_slots=(*planned.batch_kept, host))


def test_batch_slots_need_room_and_missing_ones_need_a_note():
    shares = {**SHARES, BATCH: Share(minimum=1, target=3, maximum=4)}
    planned, spec, cluster = drained(replace(RULES, shares=shares))
    full = cluster.with_hosts(
        {**cluster.hosts, "h4": replace(cluster.hosts["h4"], capacity=Capacity(cpu=2, memory=2048))}
    )
    lent = (*planned.batch_kept, "h4")
    assert "once batch has its slots: h4 holds 3 of 2 cpu and 3072 of 2048 MiB" in problems(
        planned, spec, full, batch_slots=lent
    )
    silent = problems(planned, spec, cluster, batch_slots=planned.batch_kept, notes=())
    assert "batch would have 2 slots instead of 3, but the plan has no note on it" in silent
    assert "batch would keep slots that it should not have" in problems(
        planned, spec, cluster, batch_slots=("h1", "h1", "h3")
    )


@st.composite
def planned_drains(draw, drawn):
    """Draw a drain that moves something, with its plan."""
    cluster = draw(drawn)
    spec = ChangeSpec(kind="drain", host=draw(st.sampled_from(sorted(cluster.hosts))))
    try:
        planned = plan(spec, cluster)
    except RefusedError:
        planned = Plan()
    assume(planned.moves)
    return spec, cluster, planned


@SETTINGS
@given(planned_drains(st.one_of(clusters(), crowded())), st.data())
def test_a_correct_plan_with_one_mutation_is_rejected(drawn, data):
    spec, cluster, planned = drawn
    assert problems(planned, spec, cluster) == []
    number = data.draw(st.integers(0, len(planned.moves) - 1))
    move, others = planned.moves[number], (*planned.moves[:number], *planned.moves[number + 1 :])
    driver, slots = move.after.driver, move.after.slots
    mutation = data.draw(
        st.sampled_from(
            [
                {"after": move.before},
                {"after": Placement(driver=spec.host, slots=slots)},
                {"after": Placement(driver=driver, slots=(spec.host, *slots[1:]))},
                {"after": Placement(driver=driver, slots=(*slots, slots[0] if slots else driver))},
                {"short": move.short + 1},
                {"before": move.after},
                *([{"after": Placement(driver=driver, slots=slots[1:])}] if slots else ()),
            ]
        )
    )
    assert problems(planned, spec, cluster, moves=others)
    mutated = (*planned.moves[:number], move.model_copy(update=mutation), *planned.moves[number + 1 :])
    assert problems(planned, spec, cluster, moves=mutated)


@SETTINGS
@given(planned_drains(clusters()), st.data())
def test_a_plan_for_a_host_with_too_little_capacity_is_rejected(drawn, data):
    spec, cluster, planned = drawn
    move = planned.moves[0]
    name = data.draw(st.sampled_from(sorted(move.after.hosts)))
    tier = cluster.tiers[move.tier].spec
    needs = (
        move.after.slots.count(name) * tier.quantum.memory + (move.after.driver == name) * tier.driver.memory
    )
    host = cluster.hosts[name]
    less = replace(
        host, capacity=host.capacity.model_copy(update={"memory": max(1, needs - 1)}), used_memory=0
    )
    assert any(
        "is prepared: " in problem
        for problem in problems(planned, spec, cluster.with_hosts({**cluster.hosts, name: less}))
    )


class Evict(Drain):
    """A kind that the planner cannot carry out: it does not know that the host must be empty."""

    name = "evict"
    empties_host = False


def test_a_plan_that_leaves_undone_what_its_kind_wants_is_rejected(monkeypatch):
    monkeypatch.setitem(KINDS, "evict", Evict())
    spec, cluster = ChangeSpec(kind="evict", host="h2"), cluster_of(t=T)
    planned = plan(spec, cluster)
    assert [move.after for move in planned.moves] == [T]
    assert problems(planned, spec, cluster) == ["after its move, t is on h2"]
