"""A lowered number takes exactly that many workers away: in place, or with a handover.

A handover takes more workers for a time if room is short beside the old ones.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.spread import Spread
from sluice_ops.model.tier import Mode, Standby
from sluice_ops.model.wording import counted
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.shares import target
from tests.unit.sluice_ops.planning.clusters import SMALL, clusters, dedicated, host_of, spec_of, with_workers

STATE = {"state": True}
"""State lies with the workers, so a handover is needed."""
REALTIME = {"mode": Mode.REALTIME}


def beside(cpu, numbers, *, kind=STATE, **hosts):
    """Return a cluster whose tiers run with each first number, and a shift that sets the second.

    A tier runs on the named host, else on h1; each host has the given cpu.
    """
    all_hosts = {name: host_of(name, cpu=cpu, memory=65536) for name in {"h1", *hosts.values()}}
    tiers, shares = {}, {}
    for name, (k, _) in numbers.items():
        host = hosts.get(name, "h1")
        spec, placement = (
            spec_of(name, distance=len(tiers)).model_copy(update=kind),
            Placement(driver=host, slots=(host,) * k),
        )
        all_hosts, tiers[name] = holding(all_hosts, spec, placement), TierNow(spec, placement)
        shares[name] = Share(minimum=1, target=k, maximum=8)
    shifts = {"night": {name: Numbers(target=k) for name, (_, k) in numbers.items()}}
    return Cluster(
        all_hosts,
        tiers,
        (),
        Rules(shares=shares, shifts=shifts, locality=hosts, partitions=8, batch_quantum=SMALL),
    )


NIGHT = ChangeSpec(kind="shift", shift="night")


@pytest.mark.parametrize(("cpu", "slots"), [(8, 3), (7, 2), (6, 1)])
def test_a_lowering_shift_takes_more_workers_only_without_room(cpu, slots):
    planned = plan(NIGHT, beside(cpu, {"t": (4, 3)}))
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(slots, 3 - slots)]
    note = (
        f"t gets {counted(slots, 'slot')}, {3 - slots} fewer than its share, until its 4 old slots are "
        "released: room is short beside them"
    )
    assert (note in planned.notes) is (slots < 3)


@pytest.mark.parametrize(
    ("cpu", "first"),
    [
        (
            7,
            "since there is room for 2, run `sluice scale t 2` and then `sluice scale t 3`; or ",
        ),
        (5, ""),
    ],
)
def test_a_lower_number_without_room_is_refused_with_the_alternatives(cpu, first):
    with pytest.raises(RefusedError) as refused:
        plan(ChangeSpec(kind="scale", tier="t", k=3), beside(cpu, {"t": (4, 3)}))
    assert str(refused.value).endswith(
        "To get fewer workers, t has to be handed over (it keeps state in its workers), and 3 new workers "
        f"run beside the 4 old ones for a moment: {first}accept a gap in the output and run `sluice stop "
        "t`, `sluice scale t 3`, `sluice start t`"
    )


def test_a_higher_number_without_room_is_refused_without_alternatives():
    with pytest.raises(RefusedError, match=r"or lower a share$"):
        plan(ChangeSpec(kind="scale", tier="t", k=5), beside(7, {"t": (4, 3)}))


def test_a_lowered_tier_gives_up_its_workers_though_another_lacks_room():
    cluster = beside(12, {"down": (4, 3), "up": (1, 8)})
    planned = plan(NIGHT, cluster)
    assert [(move.tier, len(move.after.slots), move.short) for move in planned.moves] == [
        ("down", 3, 0),
        ("up", 6, 2),
    ]
    assert violations(planned, NIGHT, aftermath(NIGHT, cluster)) == []


def test_a_lowered_tier_with_room_gives_up_no_more_for_another_lowered_one():
    cluster = beside(8, {"near": (4, 3), "far": (5, 4)}, near="h1", far="h2")
    planned = plan(NIGHT, cluster)
    assert [(move.tier, len(move.after.slots), move.short) for move in planned.moves] == [
        ("near", 3, 0),
        ("far", 2, 2),
    ]


def plan_fewer(k, cluster, name="t"):
    """Plan fewer workers for a tier; the checker accepts the plan."""
    spec = ChangeSpec(kind="scale", tier=name, k=k)
    planned = plan(spec, cluster)
    assert violations(planned, spec, aftermath(spec, cluster)) == []
    return planned


@settings(max_examples=200)
@given(clusters(), st.data())
def test_a_micro_batch_tier_releases_the_fewest_workers_in_place(cluster, data):
    several = [
        name
        for name in with_workers(cluster)
        if target(name, cluster.rules).slots > 1 and cluster.tiers[name].spec.mode is Mode.BATCH
    ]
    assume(several)
    name = data.draw(st.sampled_from(several))
    now = cluster.tiers[name].placement
    aim = target(name, cluster.rules)
    k = data.draw(st.integers(1, aim.slots - 1))
    planned = plan_fewer(k, cluster, name)
    (move,) = planned.moves
    assert (move.in_place, move.released, move.moved) == (True, len(now.slots) - k - aim.spare, 0)
    assert not Counter(move.after.slots) - Counter(now.slots)
    assert planned.predicted_gap_seconds == 0


def test_releasing_workers_in_place_needs_no_room():
    (move,) = plan_fewer(3, beside(4.5, {"t": (4, 3)}, kind={})).moves
    assert (move.after.driver, move.after.slots, move.in_place) == ("h1", ("h1",) * 3, True)


def test_a_realtime_tier_restarts_on_fewer_workers_only_without_room():
    realtime = {"mode": Mode.REALTIME}
    with_room, without = (plan_fewer(2, beside(cpu, {"t": (4, 2)}, kind=realtime)) for cpu in (16, 5))
    assert [move.in_place for move in (*with_room.moves, *without.moves)] == [False, True]
    assert with_room.predicted_gap_seconds < without.predicted_gap_seconds < with_room.predicted_seconds


@pytest.mark.parametrize("kind", [STATE, {"standby": Standby.WARM}])
def test_a_tier_with_state_or_standby_is_handed_over(kind):
    (move,) = plan_fewer(3, beside(16, {"t": (4, 3)}, kind=kind)).moves
    assert not move.in_place


@pytest.mark.parametrize("changed", [{"paused": True}, {"paused_workers": ("slot-t-1-0",)}])
def test_a_tier_with_paused_workers_is_handed_over(changed):
    cluster = beside(16, {"t": (4, 3)}, kind={})
    cluster = replace(cluster, tiers={"t": replace(cluster.tiers["t"], **changed)})
    (move,) = plan_fewer(3, cluster).moves
    assert not move.in_place


def test_a_tier_on_a_cordoned_host_releases_workers_in_place():
    cluster = beside(4.5, {"t": (4, 3)}, kind={}).with_state("h1", HostState.CORDONED)
    (move,) = plan_fewer(3, cluster).moves
    assert move.in_place


@pytest.mark.parametrize("k", [1, 2])
def test_a_realtime_tier_keeps_a_thread_for_each_partition(k):
    cluster = beside(4.5, {"t": (4, k)}, kind={"mode": Mode.REALTIME})
    with suppress(RefusedError):
        assert k == len(plan_fewer(k, cluster).moves[0].after.slots) == 2


def test_only_the_realtime_tier_without_room_shrinks_in_place():
    realtime = {"mode": Mode.REALTIME}
    cluster = beside(16, {"roomy": (3, 2), "tight": (3, 2)}, kind=realtime, roomy="h1", tight="h2")
    small = replace(cluster.hosts["h2"], capacity=Capacity(cpu=4, memory=65536))
    cluster = cluster.with_hosts({**cluster.hosts, "h2": small})
    planned = plan(NIGHT, cluster)
    assert {move.tier: move.in_place for move in planned.moves} == {"roomy": False, "tight": True}
    assert violations(planned, NIGHT, aftermath(NIGHT, cluster)) == []


def test_a_raised_tier_uses_the_room_a_lowered_tier_gives_up():
    cluster = beside(6, {"near": (3, 1), "far": (1, 2)}, kind={})
    planned = plan(NIGHT, cluster)
    assert [(move.tier, len(move.after.slots), move.in_place) for move in planned.moves] == [
        ("near", 1, True),
        ("far", 2, True),
    ]
    assert violations(planned, NIGHT, aftermath(NIGHT, cluster)) == []


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (
            {"after": Placement(driver="h1", slots=("h2", "h1", "h1"))},
            "would not keep the first of its workers",
        ),
        (
            {"after": Placement(driver="h2", slots=("h1", "h1", "h1"))},
            "would not keep the first of its workers",
        ),
        ({"before": None}, "would not keep the first of its workers"),
    ],
)
def test_a_plan_that_moves_a_tier_without_a_handover_is_rejected(mutation, message):
    cluster = beside(16, {"t": (4, 3)}, kind={})
    cluster = cluster.with_hosts({**cluster.hosts, "h2": host_of("h2", cpu=16, memory=65536)})
    spec = ChangeSpec(kind="scale", tier="t", k=3)
    planned = plan(spec, cluster)
    bad = planned.model_copy(update={"moves": (planned.moves[0].model_copy(update=mutation),)})
    assert any(message in problem for problem in violations(bad, spec, aftermath(spec, cluster)))


@pytest.mark.parametrize("kind", [STATE, {"standby": Standby.WARM}])
def test_only_a_stateless_tier_without_standby_gets_workers_in_place(kind):
    spec = ChangeSpec(kind="scale", tier="t", k=4)
    cluster = beside(16, {"t": (3, 3)}, kind=kind)
    planned = plan(spec, cluster)
    assert [move.in_place for move in planned.moves] == [False]
    assert planned.notes[0].startswith("t is handed over to get workers: it")
    grown = Placement(driver="h1", slots=("h1",) * 4)
    bad = planned.model_copy(
        update={"moves": (planned.moves[0].model_copy(update={"after": grown, "in_place": True}),)}
    )
    (problem,) = violations(bad, spec, aftermath(spec, cluster))
    assert problem.startswith("t would get workers in place, but it")


def test_a_realtime_tier_gets_workers_in_place_with_a_short_gap():
    spec, cluster = ChangeSpec(kind="scale", tier="t", k=4), beside(16, {"t": (3, 3)}, kind=REALTIME)
    planned = plan(spec, cluster)
    assert [(move.in_place, move.joining) for move in planned.moves] == [(True, 1)]
    assert planned.predicted_gap_seconds == cluster.pace.realtime_join_gap
    assert violations(planned, spec, aftermath(spec, cluster)) == []
    handed_over = plan(spec, with_tier(cluster, takes_workers=False))
    assert [move.in_place for move in handed_over.moves] == [False]
    assert handed_over.notes == ("t is handed over to get workers: its driver is of an older version",)


def test_a_realtime_tier_with_too_few_threads_gets_workers_in_place():
    spec, cluster = ChangeSpec(kind="scale", tier="t", k=2), beside(16, {"t": (1, 1)}, kind=REALTIME)
    planned = plan(spec, cluster)
    assert [(move.in_place, move.joining) for move in planned.moves] == [(True, 1)]
    assert violations(planned, spec, aftermath(spec, cluster)) == []


def test_a_plan_that_adds_workers_against_a_rule_is_rejected():
    spec, cluster = ChangeSpec(kind="scale", tier="t", k=4), beside(16, {"t": (3, 3)}, kind={})
    planned = plan(spec, cluster)
    assert (planned.moves[0].joining, planned.predicted_seconds) == (1, cluster.pace.join_in_place)
    cordoned = aftermath(spec, cluster).with_state("h1", HostState.CORDONED)
    assert "t would get workers on a host that takes none" in violations(planned, spec, cordoned)
    older = aftermath(spec, with_tier(cluster, takes_workers=False))
    message = "t would get workers in place, but its driver is of an older version"
    assert violations(planned, spec, older) == [message]


def test_a_plan_that_shrinks_a_stateful_tier_in_place_is_rejected():
    cluster = beside(16, {"t": (4, 3)})
    spec = ChangeSpec(kind="scale", tier="t", k=3)
    planned = plan(spec, cluster)
    in_place_move = {"after": Placement(driver="h1", slots=("h1",) * 3), "in_place": True}
    bad = planned.model_copy(update={"moves": (planned.moves[0].model_copy(update=in_place_move),)})
    assert violations(bad, spec, aftermath(spec, cluster)) == [
        "t would release workers in place, but it keeps state in its workers"
    ]


OBSTACLES = {
    "it has a standby": lambda now: with_tier(
        now, spec=now.tiers["t"].spec.model_copy(update={"standby": Standby.HOT})
    ),
    "it keeps state in its workers": lambda now: with_tier(
        now, spec=now.tiers["t"].spec.model_copy(update=STATE)
    ),
    "it, or one of its workers, is paused": lambda now: with_tier(now, paused_workers=("slot-t-1-0",)),
    "the other workers have too few threads": lambda now: with_tier(
        now, spec=now.tiers["t"].spec.model_copy(update={"mode": Mode.REALTIME, "partitions": 16})
    ),
}


def with_tier(cluster, **changed):
    return replace(cluster, tiers={"t": replace(cluster.tiers["t"], **changed)})


def allowed_in_place():
    """Return a tier, a change and a plan that releases one of four workers in place."""
    cluster, spec = beside(16, {"t": (4, 3)}, kind={}), ChangeSpec(kind="scale", tier="t", k=3)
    return cluster, spec, plan_fewer(3, cluster)


@pytest.mark.parametrize("reason", OBSTACLES)
def test_a_plan_that_shrinks_in_place_against_a_rule_is_rejected(
    reason,
):
    cluster, spec, planned = allowed_in_place()
    message = f"t would release workers in place, but {reason}"
    assert message not in violations(planned, spec, aftermath(spec, cluster))
    assert message in violations(planned, spec, aftermath(spec, OBSTACLES[reason](cluster)))


def test_a_plan_that_shrinks_a_paused_tier_or_for_a_drain_is_rejected():
    cluster, spec, planned = allowed_in_place()
    paused = with_tier(cluster, paused=True)
    assert "t would release workers in place, but it, or one of its workers, is paused" in violations(
        planned, spec, aftermath(spec, paused)
    )
    drain = ChangeSpec(kind="drain", host="h1")
    assert "t would stay in place, but a drain has to hand it over" in violations(
        planned, drain, aftermath(drain, cluster)
    )


@pytest.mark.parametrize(
    "rule",
    [
        {"spread": {"t": Spread(host=2)}},
        {"dedicated": {"h1": frozenset({"others"})}},
        {"locality": {"t": "h2"}},
    ],
)
def test_a_tier_with_a_remaining_worker_against_a_rule_is_handed_over(rule):
    cluster = beside(16, {"t": (4, 3)}, kind={})
    hosts = {**cluster.hosts, "h2": host_of("h2", cpu=16, memory=65536)}
    cluster = replace(cluster, rules=replace(cluster.rules, **rule))
    cluster = cluster.with_hosts(dedicated(hosts, cluster.rules))
    (move,) = plan_fewer(3, cluster).moves
    assert not move.in_place
    assert not Counter(move.after.slots)["h1"] > 2
