"""Plans: fewest moves, never over capacity, every tier keeps its number of workers, and a refusal
says what to do.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.assignment import HostState
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.planning.changes.kinds import KINDS
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
from sluice_ops.planning.placement.requests import Request
from sluice_ops.planning.placement.shares import Target, target
from sluice_ops.planning.placement.solver import place, place_tier
from sluice_ops.planning.shortage.fitting import fewest_slots
from tests.unit.sluice_ops.planning.clusters import (
    checked_plan,
    clusters,
    host_of,
    layers_after,
    spec_of,
    with_workers,
)

SETTINGS = settings(max_examples=60)


@SETTINGS
@given(clusters())
def test_placing_a_placed_tier_again_moves_nothing(cluster):
    for name, tier in cluster.tiers.items():
        without = holding(cluster.hosts, tier.spec, tier.placement, -1)
        again, _ = place_tier(tier.spec, target(name, cluster.rules), tier.placement, without)
        slots = () if tier.spec.light else again.slots if tier.awaits_upgrade else tier.placement.slots
        assert again == Placement(driver=tier.placement.driver, slots=slots)


@SETTINGS
@given(clusters(), st.data())
def test_room_after_a_move_equals_room_computed_from_empty_hosts(cluster, data):
    names = st.sampled_from([*cluster.hosts, "gone"])
    for tier in cluster.tiers.values():
        after = Placement(driver=data.draw(names), slots=tuple(data.draw(st.lists(names, max_size=5))))
        hosts_after = moved(cluster.hosts, tier.spec, tier.placement, after)
        anew = holding(holding(cluster.hosts, tier.spec, tier.placement, -1), tier.spec, after)
        assert hosts_after.keys() == anew.keys()
        for name, host in hosts_after.items():
            assert (host.used_cpu, host.used_memory) == (
                pytest.approx(anew[name].used_cpu),
                anew[name].used_memory,
            )
            assert Counter(host.tiers) == Counter(anew[name].tiers)


@SETTINGS
@given(clusters(), st.data())
def test_a_drain_leaves_nothing_on_the_host_and_is_never_over_capacity(cluster, data):
    name = data.draw(st.sampled_from(sorted(cluster.hosts)))
    spec = ChangeSpec(kind="drain", host=name)
    planned = checked_plan(spec, cluster)
    if planned is None:
        return
    moved = {move.tier: move.after for move in planned.moves}
    short = {move.tier: move.short for move in planned.moves}
    hosts = cluster.hosts
    for tier, now in cluster.tiers.items():
        after = moved.get(tier, now.placement)
        assert name not in after.hosts
        share = len(now.placement.slots)
        if now.awaits_upgrade and tier in moved:
            share = target(tier, cluster.rules).own
        assert len(after.slots) == share - short.get(tier, 0)
        assert after.slots or now.spec.light or now.awaits_upgrade
        hosts = holding(holding(hosts, now.spec, now.placement, -1), now.spec, after)
    assert overfull(hosts) == []
    if not any(name in tier.placement.hosts for tier in cluster.tiers.values()):
        assert planned.moves == ()


@SETTINGS
@given(clusters(), st.data())
def test_scaling_down_gives_up_slots_and_moves_none(cluster, data):
    if not with_workers(cluster):
        return
    name = data.draw(st.sampled_from(with_workers(cluster)))
    tier = cluster.tiers[name]
    k = data.draw(st.integers(1, len(tier.placement.slots)))
    rooms = {
        host: replace(room, capacity=Capacity(cpu=64, memory=65536)) for host, room in cluster.hosts.items()
    }
    placement, _ = place_tier(tier.spec, Target(k), tier.placement, rooms)
    assert placement.driver == tier.placement.driver
    assert not [
        slot for slot in placement.slots if placement.slots.count(slot) > tier.placement.slots.count(slot)
    ]


@SETTINGS
@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.lists(st.tuples(st.sampled_from(Layer), st.integers(0, 20)), max_size=5),
)
def test_shares_stay_within_their_limits_and_the_highest_layer_wins(low, span, entries):
    share = Share(minimum=low, target=low, maximum=low + span)
    layers = Layers(
        entries=tuple(
            LayerEntry(tenant="t", layer=layer, target=number, owner="x", at=0.0) for layer, number in entries
        )
    )
    result = target("t", Rules(shares={"t": share}, layers=layers))
    assert low <= result.slots <= low + span
    if entries:
        highest = max(layer for layer, _ in entries)
        wanted = [number for layer, number in entries if layer is highest][-1]
        assert result.slots == max(low, min(low + span, wanted))
        assert result.layer is highest


def test_slots_of_one_tier_are_spread_over_the_hosts():
    hosts = {name: host_of(name) for name in ("h1", "h2", "h3")}
    placed = place([Request("t", 3, Quantum(cpu=1, memory=512))], hosts)
    assert placed.where["t", "slots"] == ("h1", "h2", "h3")


def test_only_a_burst_uses_burst_hosts():
    hosts = {"h1": host_of("h1"), "e1": host_of("e1", zone="ec2")}
    spec = spec_of("enrich")
    plain, _ = place_tier(spec, Target(2), None, hosts)
    assert plain.hosts == {"h1"}
    burst, _ = place_tier(spec, Target(2, extra=1, extra_to="zone:ec2"), plain, hosts)
    assert burst == Placement(driver="h1", slots=("h1", "h1", "e1"))


def test_a_cordoned_place_gets_a_note_and_an_unknown_place_is_refused():
    hosts = {"h1": host_of("h1", labels=("fast",), state=HostState.CORDONED), "h2": host_of("h2")}
    placement, placed = place_tier(spec_of("enrich"), Target(1, to="label:fast"), None, hosts)
    assert placement.hosts == {"h2"}
    assert (
        placed.notes[0] == "enrich has to be at label:fast, but h1 is cordoned: "
        "enrich may run anywhere until it is moved again"
    )
    with pytest.raises(
        RefusedError,
        match="has to be at label:slow, and there is no such host; hosts: h1, h2; zones: onprem; "
        "labels: fast",
    ):
        place_tier(spec_of("enrich"), Target(1, to="label:slow"), None, hosts)


def test_a_refusal_for_a_full_place_names_the_alternatives():
    hosts = {"h1": host_of("h1"), "h2": host_of("h2")}
    with pytest.raises(
        RefusedError,
        match=r"find no room at h1; .* or run `sluice migrate enrich anywhere` if a migrate has set h1$",
    ):
        place_tier(spec_of("enrich"), Target(99, to="h1"), None, hosts)
    with pytest.raises(RefusedError, match=r"find no room; .*, or lower a share$"):
        place_tier(spec_of("enrich"), Target(99), None, hosts)


def running(k=2, **more):
    hosts = {"h1": host_of("h1", labels=("fast",)), "h2": host_of("h2"), "h3": host_of("h3")}
    spec = spec_of("counts", **more)
    placement, placed = place_tier(spec, Target(k), None, hosts)
    rules = Rules(
        shares={
            "counts": Share(minimum=1, target=k, maximum=4),
            "batch": Share(minimum=0, target=0, maximum=2),
        },
        shifts={
            "night": {"counts": Numbers(target=1), "batch": Numbers(target=1)},
            "odd": {"nobody": Numbers(target=1)},
        },
        partitions=3,
    )
    return Cluster(placed.hosts, {"counts": TierNow(spec, placement)}, (), rules)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"kind": "drain", "host": "h9"}, 'there is no host "h9"; known hosts: h1, h2, h3'),
        ({"kind": "drain"}, "drain needs a host; known hosts: h1, h2, h3"),
        ({"kind": "scale", "tier": "sums", "k": 1}, 'there is no tier "sums"; known tiers: counts'),
        (
            {"kind": "scale", "tier": "counts", "k": 0},
            (
                "0 is below its minimum of 1; ask for more, or pause the tier with `sluice pause counts`, "
                "or remove its workers with `sluice stop counts`"
            ),
        ),
        (
            {"kind": "scale", "tier": "counts", "k": 5},
            "5 is above its maximum of 4; ask for less, or raise shares.counts.maximum",
        ),
        (
            {"kind": "scale", "tier": "counts", "k": 1, "minimum": 2},
            "1 is below its minimum of 2; ask for more, or lower the minimum of this change",
        ),
        (
            {"kind": "scale", "tier": "counts", "k": 2, "minimum": 3, "maximum": 2},
            "counts: a minimum of 3 is above a maximum of 2; ask for",
        ),
        (
            {"kind": "scale", "tier": "counts", "k": 4},
            "its input has 3 partitions, so 1 of 4 workers would read nothing",
        ),
        (
            {"kind": "migrate", "tier": "counts", "to": "zone:moon"},
            "cannot move to zone:moon: no host is there; known: h1, h2, h3, zone:onprem",
        ),
        (
            {"kind": "burst", "tier": "counts", "k": 1},
            "no host at zone:ec2 is up; launch one with `sluice burst counts 1` or burst_to_ec2",
        ),
        (
            {"kind": "shift", "shift": "noon"},
            'there is no shift "noon" in the site file; known shifts: night, odd',
        ),
        ({"kind": "shift", "shift": "odd"}, 'names "nobody", which is neither a tier nor batch'),
    ],
)
def test_a_refusal_names_the_object_and_the_next_step(spec, reason):
    with pytest.raises(RefusedError) as refused:
        plan(ChangeSpec(**spec), running())
    assert reason in str(refused.value)


def test_a_tier_without_a_share_is_refused_zero_workers_and_too_many():
    cluster = running()
    shares = {"batch": cluster.rules.shares["batch"]}
    cluster = replace(cluster, rules=replace(cluster.rules, shares=shares, partitions=32))
    with pytest.raises(
        RefusedError,
        match=r'tier "counts": 0 is below its minimum of 1; ask for more, '
        r"or pause the tier with `sluice pause counts`",
    ):
        plan(ChangeSpec(kind="scale", tier="counts", k=0), cluster)
    with pytest.raises(
        RefusedError,
        match=r"17 is above its maximum of 16; ask for less, or raise shares.counts.maximum in the site file",
    ):
        plan(ChangeSpec(kind="scale", tier="counts", k=17), cluster)


def test_a_maximum_below_another_layers_minimum_is_refused_naming_both():
    cluster = running()
    shares = {"counts": Share(minimum=2, target=2, maximum=4), "batch": Share(minimum=1, target=1, maximum=2)}
    cluster = replace(cluster, rules=replace(cluster.rules, shares=shares))
    message = (
        "a maximum of 1 is below its minimum of 2; ask for more, or lower shares.counts.minimum in the "
        "site file"
    )
    with pytest.raises(RefusedError, match=f'^tier "counts": {message}$'):
        plan(ChangeSpec(kind="scale", tier="counts", k=2, maximum=1), cluster)
    with pytest.raises(RefusedError, match=r"^batch: a maximum of 0 is below its minimum of 1; "):
        plan(ChangeSpec(kind="scale", tier="batch", k=1, maximum=0), cluster)


def test_a_bounded_shift_is_named_in_the_note_of_a_person_only():
    cluster = running()
    shifts = {
        "night": {"counts": Numbers(target=9)},
        "eve": {"counts": Numbers(target=1, minimum=1, maximum=2)},
    }
    cluster = replace(cluster, rules=replace(cluster.rules, shifts=shifts))
    notes = plan(ChangeSpec(kind="shift", shift="night"), cluster).notes
    assert "counts gets 4 slots, not the shift's 9: that is its maximum of the site file" in notes
    person = LayerEntry(tenant="counts", layer=Layer.PERSON, target=3, owner="anna", at=0.0)
    cluster = replace(cluster, rules=replace(cluster.rules, layers=Layers(entries=(person,))))
    notes = plan(ChangeSpec(kind="shift", shift="eve"), cluster).notes
    assert "counts gets 2 slots, not the shift's 1: that is its maximum, set by shift eve" in notes


def test_a_quantum_that_no_host_can_hold_is_refused_with_the_numbers():
    with pytest.raises(RefusedError) as refused:
        place_tier(
            spec_of("counts", quantum=Quantum(cpu=3, memory=512)),
            Target(1),
            None,
            {"h2": host_of("h2", cpu=2)},
        )
    assert (
        str(refused.value) == 'tier "counts" needs 3 cpu for one quantum, but the largest host, h2, has 2; '
        "give h2 more or lower quantum.cpu"
    )


def test_a_realtime_tier_keeps_a_thread_for_each_partition_on_a_drain():
    with pytest.raises(
        RefusedError, match="needs one thread for each of its 3 partitions, but 1 worker of 2 threads have 2"
    ):
        plan(
            ChangeSpec(kind="scale", tier="counts", k=1),
            running(mode=Mode.REALTIME, quantum=Quantum(cpu=1, memory=512, threads=2)),
        )


def running_with_partitions(partitions, k, **more):
    """Return a cluster whose tier reads the given number of partitions; the site file gives new
    streams 3 partitions.
    """
    now = running(k, **more)
    tier = now.tiers["counts"]
    spec = tier.spec.model_copy(update={"partitions": partitions})
    return replace(now, tiers={"counts": replace(tier, spec=spec)})


def test_the_partitions_of_its_streams_set_a_tiers_least_workers():
    wide = running_with_partitions(5, 3, mode=Mode.REALTIME, quantum=Quantum(cpu=1, memory=512, threads=2))
    with pytest.raises(
        RefusedError, match="needs one thread for each of its 5 partitions, but 2 workers of 2 threads have 4"
    ):
        plan(ChangeSpec(kind="scale", tier="counts", k=2), wide)
    assert fewest_slots(wide.tiers["counts"].spec, wide.rules) == 3
    assert plan(ChangeSpec(kind="scale", tier="counts", k=4), wide).moves


def test_the_partitions_of_its_streams_set_a_tiers_most_workers():
    with pytest.raises(
        RefusedError, match="its input has 2 partitions, so 1 of 3 workers would read nothing"
    ):
        plan(ChangeSpec(kind="scale", tier="counts", k=3), running_with_partitions(2, 2))


def test_a_change_without_effect_is_an_empty_plan_with_a_note():
    planned = plan(ChangeSpec(kind="scale", tier="counts", k=2), running())
    assert planned.moves == ()
    assert planned.notes == ("nothing has to move",)
    assert planned.predicted_seconds == 0


def test_scaling_back_to_the_usual_number_removes_the_persons_entry():
    rules = running().rules
    up = layers_after(ChangeSpec(kind="scale", tier="counts", k=3), rules, "anna", 1.0)
    assert target("counts", replace(rules, layers=up)).slots == 3
    down = layers_after(ChangeSpec(kind="scale", tier="counts", k=2), replace(rules, layers=up), "anna", 2.0)
    assert down == Layers()


def test_without_room_to_double_all_tiers_the_rest_follows_a_release():
    hosts = {"h1": host_of("h1", cpu=5), "h2": host_of("h2", cpu=5)}
    tiers = {}
    for name, placement in (
        ("t0", Placement(driver="h1", slots=("h1", "h2"))),
        ("t1", Placement(driver="h2", slots=("h2",))),
    ):
        spec = spec_of(name, distance=len(tiers))
        hosts = holding(hosts, spec, placement)
        tiers[name] = TierNow(spec, placement)
    cluster = Cluster(hosts, tiers, (), Rules(shares={"t0": Share(target=2), "t1": Share()}))
    spec = ChangeSpec(kind="drain", host="h2")
    planned = plan(spec, cluster)
    assert [move.tier for move in planned.moves] == ["t0", "t1"]
    assert "t1 is prepared only after t0 is released: room is short" in planned.notes
    assert violations(planned, spec, aftermath(spec, cluster)) == []


def test_a_write_off_of_all_hosts_names_the_units_on_braked_hosts_only():
    hosts = {name: host_of(name, state=HostState.LOST) for name in ("h1", "h2")}
    tiers = {
        name: TierNow(spec_of(name), Placement(driver=host, slots=(host,)))
        for name, host in (("t1", "h1"), ("t2", "h2"))
    }
    cluster = Cluster(hosts, tiers, (), Rules(), braked=frozenset({"h1"}))
    assert plan(ChangeSpec(kind="write-off"), cluster).notes[1:] == (
        "t1 has its driver and 1 worker on a host that is written off",
    )
    assert plan(ChangeSpec(kind="write-off", host="h2"), cluster).notes[1:] == (
        "t2 has its driver and 1 worker on a host that is written off",
    )


def test_the_checker_rejects_wrong_places_numbers_and_full_hosts():
    cluster = running()
    spec = ChangeSpec(kind="migrate", tier="counts", to="label:fast")
    planned, after = plan(spec, cluster), aftermath(spec, cluster)
    (move,) = planned.moves
    astray = move.model_copy(update={"after": Placement(driver="h2", slots=("h2",))})
    problems = violations(planned.model_copy(update={"moves": (astray,)}), spec, after)
    assert problems == [
        "counts would have 1 slot instead of 2",
        "counts has to be at label:fast, not with its driver on h2",
        "counts has to be at label:fast, not on h2",
    ]
    crowded = after.with_hosts(
        {name: replace(host, used_memory=host.capacity.memory) for name, host in after.hosts.items()}
    )
    assert "while counts is prepared: h1 holds" in violations(planned, spec, crowded)[0]


@pytest.mark.parametrize(
    ("spec", "effect"),
    [
        (
            ChangeSpec(kind="pause", tier="t0"),
            "t0 writes nothing until it is resumed; its input waits in the streams",
        ),
        (
            ChangeSpec(kind="pause"),
            "every tier writes nothing until it is resumed; its input waits in the streams",
        ),
        (ChangeSpec(kind="cordon", host="h1"), "nothing new is placed on h1; units that run there stay"),
        (ChangeSpec(kind="return", host="h1"), "units may be placed on h1 again"),
    ],
)
def test_a_change_that_moves_nothing_describes_its_effect(spec, effect):
    assert KINDS[spec.kind].effect(spec) == effect
