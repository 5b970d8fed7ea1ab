"""Short room: minimums come first, free room is used before batch's, and no tenant gives up more
than needed.
"""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Share
from sluice_ops.model.tier import Mode
from sluice_ops.model.wording import counted
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding, overfull
from sluice_ops.planning.placement.shares import Target, limits, target
from sluice_ops.planning.placement.solver import place_tier
from sluice_ops.planning.shortage.fitting import (
    fewest_slots,
    largest_accepted,
    place_lost,
    place_most,
    requests_for_minimums,
    why_no_room_together,
)
from sluice_ops.planning.shortage.lending import giving_back
from tests.unit.sluice_ops.planning.clusters import (
    SMALL,
    checked_plan,
    crowded,
    dedicated,
    host_of,
    spec_of,
    with_workers,
)

SETTINGS = settings(max_examples=80)


@st.composite
def changes(draw, cluster):
    """Draw a change of the cluster; about half of them ask for more."""
    running = sorted(name for name, tier in cluster.tiers.items() if tier.placement)
    kind = draw(st.sampled_from(["scale", "drain", "shift", "settle"]))
    if kind == "drain":
        return ChangeSpec(kind=kind, host=draw(st.sampled_from(sorted(cluster.hosts)))), cluster
    if kind == "scale":
        return ChangeSpec(kind=kind, tier=draw(st.sampled_from(running)), k=draw(st.integers(1, 8))), cluster
    new_numbers = {name: draw(st.integers(1, 8)) for name in running}
    if kind == "shift":
        night = {name: Numbers(target=k) for name, k in new_numbers.items()}
        return ChangeSpec(kind=kind, shift="night"), replace(
            cluster, rules=replace(cluster.rules, shifts={"night": night})
        )
    tier = draw(st.sampled_from(running))
    share = cluster.rules.shares[tier]
    shares = {
        **cluster.rules.shares,
        tier: share.model_copy(update={"target": max(share.minimum, new_numbers[tier])}),
    }
    return ChangeSpec(kind=kind, tier=tier), replace(cluster, rules=replace(cluster.rules, shares=shares))


@st.composite
def crowded_with_a_change(draw):
    cluster = draw(crowded())
    return draw(changes(cluster))


@SETTINGS
@given(crowded_with_a_change())
def test_moving_tiers_have_their_minimum_and_batch_gives_up_its_surplus(drawn):
    spec, cluster = drawn
    planned = checked_plan(spec, cluster)
    if planned is None:
        return
    after = aftermath(spec, cluster)
    for move in planned.moves:
        assert len(move.after.slots) >= min(
            target(move.tier, after.rules).slots, limits(move.tier, after.rules).minimum
        )
        aim = target(move.tier, after.rules)
        assert len(move.after.slots) == aim.own - move.short
        if move.short:
            assert spec.kind != "scale" or move.short <= aim.spare, "a scale may lack spares only"
            assert any(
                f"{move.tier} gets {counted(len(move.after.slots), 'slot')}, {move.short} fewer" in note
                for note in planned.notes
            )

    if any(move.short for move in planned.moves):
        rules = cluster.rules
        few = rules.shares[BATCH].model_copy(update={"target": rules.shares[BATCH].minimum})
        without = plan(spec, replace(cluster, rules=replace(rules, shares={**rules.shares, BATCH: few})))
        assert sum(move.short for move in planned.moves) <= sum(move.short for move in without.moves)


@SETTINGS
@given(crowded_with_a_change())
def test_no_host_is_over_full_during_or_after_a_change(drawn):
    spec, cluster = drawn
    try:
        planned = plan(spec, cluster)
    except RefusedError:
        return
    hosts = giving_back(cluster, planned.batch_kept).hosts
    for move in planned.moves:
        hosts = holding(
            holding(hosts, cluster.tiers[move.tier].spec, move.before, -1),
            cluster.tiers[move.tier].spec,
            move.after,
        )
    lent = list(planned.batch_slots)
    for name in planned.batch_kept:
        lent.remove(name)
    for name in lent:
        hosts[name] = hosts[name].holding(SMALL)
    assert overfull(hosts) == []


@SETTINGS
@given(crowded_with_a_change())
def test_a_refusal_for_want_of_room_is_right_and_names_tenant_and_numbers(
    drawn,
):
    spec, cluster = drawn
    try:
        plan(spec, cluster)
    except RefusedError as refused:
        message = str(refused)
        if "find no room" not in message:
            return
        assert any(name in message for name in cluster.tiers)
        assert "; free: " in message
        if spec.kind == "drain":
            assert message.startswith("there is no room for the minimum of each tier that moves (")
            low = {
                name: share.model_copy(update={"target": share.minimum})
                for name, share in cluster.rules.shares.items()
            }
            with pytest.raises(RefusedError):
                plan(spec, replace(cluster, rules=replace(cluster.rules, shares=low)))


@SETTINGS
@given(crowded_with_a_change())
def test_a_raised_tier_never_gets_fewer_workers_for_want_of_room(drawn):
    spec, cluster = drawn
    assume(spec.kind != "drain")
    try:
        planned = plan(spec, cluster)
    except RefusedError:
        return
    rules = aftermath(spec, cluster).rules
    for move in planned.moves:
        if target(move.tier, rules).slots > len(move.before.slots):
            assert len(move.after.slots) > len(move.before.slots)


@SETTINGS
@given(crowded(), st.data())
def test_a_raised_share_takes_free_room_first_and_then_the_least_of_batch(cluster, data):
    running = sorted(name for name, tier in cluster.tiers.items() if tier.placement)
    spec = ChangeSpec(kind="scale", tier=data.draw(st.sampled_from(running)), k=data.draw(st.integers(1, 8)))
    try:
        planned = plan(spec, cluster)
    except RefusedError:
        return
    kept_count = len(planned.batch_kept)
    if kept_count == len(cluster.batch):
        return
    share = cluster.rules.shares[BATCH]
    dearer = {**cluster.rules.shares, BATCH: share.model_copy(update={"minimum": kept_count + 1})}
    try:
        without_slot = plan(spec, replace(cluster, rules=replace(cluster.rules, shares=dearer)))
    except RefusedError:
        return
    missing_spares = [sum(move.short for move in each.moves) for each in (planned, without_slot)]
    assert missing_spares[0] < missing_spares[1] or not without_slot.moves


@SETTINGS
@given(crowded(), st.data())
def test_a_lowered_share_removes_exactly_its_workers_and_moves_no_others(cluster, data):
    running = [name for name in with_workers(cluster) if cluster.tiers[name].placement]
    assume(running)
    name = data.draw(st.sampled_from(running))
    before = cluster.tiers[name].placement
    spare = target(name, cluster.rules).spare
    k = data.draw(st.integers(limits(name, cluster.rules).minimum, len(before.slots) - spare))
    roomy = cluster.with_hosts(
        {host: replace(room, capacity=Capacity(cpu=99, memory=99999)) for host, room in cluster.hosts.items()}
    )
    planned = plan(ChangeSpec(kind="scale", tier=name, k=k), roomy)
    assert sorted(planned.batch_kept) == sorted(cluster.batch)
    assert [move.tier for move in planned.moves] == ([name] if k + spare < len(before.slots) else [])
    for move in planned.moves:
        assert move.after.driver == before.driver
        gone = list(before.slots)
        for slot in move.after.slots:
            gone.remove(slot)  # each remaining worker keeps its place
        assert len(gone) == len(before.slots) - k - spare


@SETTINGS
@given(crowded(), st.data())
def test_batchs_lowered_share_takes_away_as_many_slots_as_it_is_lowered_by(cluster, data):
    share = cluster.rules.shares[BATCH]
    k = data.draw(st.integers(share.minimum, len(cluster.batch)))
    planned = plan(ChangeSpec(kind="scale", tier=BATCH, k=k), cluster)
    assert planned.moves == ()
    assert len(planned.batch_kept) == len(planned.batch_slots) == k
    left = list(cluster.batch)
    for slot in planned.batch_kept:
        left.remove(slot)


@SETTINGS
@given(crowded())
def test_a_starting_tier_gets_its_minimum_first_and_starves_no_other_tier(
    cluster,
):
    for name, tier in cluster.tiers.items():
        if tier.placement is not None:
            continue
        aim, others = target(name, cluster.rules), requests_for_minimums(cluster, name)
        fewest = min(aim.slots, fewest_slots(tier.spec, cluster.rules))
        try:
            placement, _ = place_most(tier.spec, aim, None, cluster)
        except RefusedError:
            with pytest.raises(RefusedError):
                place_tier(tier.spec, aim.with_own(fewest), None, cluster.hosts)
            continue
        assert fewest <= len(placement.slots) <= aim.own
        hosts = holding(cluster.hosts, tier.spec, placement)
        assert overfull(hosts) == []
        smallest, _ = place_tier(tier.spec, aim.with_own(fewest), None, cluster.hosts)
        if why_no_room_together(others, holding(cluster.hosts, tier.spec, smallest)) is None:
            assert why_no_room_together(others, hosts) is None


def test_room_that_another_tier_cannot_use_is_not_reserved_for_it():
    hosts = {"h1": host_of("h1", cpu=6, memory=32768)}
    shares = {
        "t0": Share(minimum=1, target=3),
        "t1": Share(minimum=9, target=9),
        "t2": Share(minimum=1, target=1),
    }
    tiers = {name: TierNow(spec_of(name)) for name in shares}
    placement, _ = place_most(
        tiers["t0"].spec, Target(3), None, Cluster(hosts, tiers, (), Rules(shares=shares, partitions=8))
    )
    assert len(placement.slots) == 3, "t2 has room beside t0, and t1 has no room in any case"


@SETTINGS
@given(crowded(), st.integers(0, 4), st.integers(0, 4))
def test_lost_slots_are_replaced_without_taking_other_tiers_room(cluster, lost, alive):
    name, tier = next((name, tier) for name, tier in cluster.tiers.items() if tier.placement)
    new_slots = place_lost(tier.spec, lost, ["elsewhere"] * alive, cluster)
    assert len(new_slots) <= lost
    hosts = dict(cluster.hosts)
    for host in new_slots:
        hosts[host] = hosts[host].holding(tier.spec.quantum)
    assert overfull(hosts) == []
    others = requests_for_minimums(cluster, name)
    if (
        alive >= fewest_slots(tier.spec, cluster.rules)
        and why_no_room_together(others, cluster.hosts) is None
    ):
        assert why_no_room_together(others, hosts) is None


@given(st.integers(0, 50), st.integers(-1, 50))
def test_the_search_returns_the_largest_possible_number(top, limit):
    def attempt(number):
        if number > limit:
            raise RefusedError(str(number))
        return number

    if limit < 0:
        with pytest.raises(RefusedError, match=r"^0$"):
            largest_accepted(top, attempt)
    else:
        assert largest_accepted(top, attempt) == (min(top, limit),) * 2


def test_a_realtime_tier_is_not_made_smaller_than_its_partitions_need():
    spec = spec_of("t", mode=Mode.REALTIME)
    assert fewest_slots(spec, Rules(shares={"t": Share(minimum=1)}, partitions=12)) == 3


def test_the_checker_finds_tiers_below_minimum_or_short_beside_batch():
    spec = spec_of("t")
    placement = Placement(driver="h1", slots=("h1", "h1", "h1"))
    hosts = holding({"h1": host_of("h1", cpu=16, memory=32768)}, spec, placement)
    hosts["h1"] = hosts["h1"].holding(SMALL, 2)
    shares = {"t": Share(minimum=2, target=4, maximum=8), BATCH: Share(minimum=1, target=2, maximum=8)}
    cluster = Cluster(
        hosts,
        {"t": TierNow(spec, placement)},
        ("h1", "h1"),
        Rules(shares=shares, partitions=8, batch_quantum=SMALL),
    )
    settle = ChangeSpec(kind="settle", tier="t")
    planned = plan(settle, cluster)
    assert violations(planned, settle, cluster) == []
    (move,) = planned.moves
    few = move.model_copy(update={"after": Placement(driver="h1", slots=("h1",)), "short": 3})
    assert violations(planned.model_copy(update={"moves": (few,)}), settle, cluster) == [
        "t would have 1 slot, below its minimum of 2",
        "t would be short while batch keeps more than its minimum of 1",
    ]
    silent = few.model_copy(update={"short": 0})
    assert "t would have 1 slot instead of 4" in violations(
        planned.model_copy(update={"moves": (silent,)}), settle, cluster
    )
    assert violations(planned.model_copy(update={"batch_kept": (), "batch_slots": ()}), settle, cluster) == [
        "batch would have 0 slots instead of 2, but the plan has no note on it",
        "batch would keep 0 slots, below its minimum of 1",
    ]
    assert "batch would keep slots that it does not have" in violations(
        planned.model_copy(update={"batch_kept": ("h2",)}), settle, cluster
    )


def short_beside_batch(**more):
    """Return a drain, and a cluster whose tier gets only three of its four slots after the drain,
    while batch is on a host of another zone.
    """
    spec = spec_of("t")
    placement = Placement(driver="h2", slots=("h2",) * 4)
    hosts = {
        "h1": host_of("h1", cpu=4, zone="a"),
        "h2": host_of("h2", zone="a"),
        "h3": host_of("h3", cpu=4, zone="b"),
    }
    hosts = holding(hosts, spec, placement)
    hosts["h3"] = hosts["h3"].holding(SMALL, 3)
    shares = {"t": Share(minimum=1, target=4, maximum=8), BATCH: Share(minimum=0, target=3, maximum=4)}
    rules = Rules(shares=shares, partitions=8, batch_quantum=SMALL, **more)
    return ChangeSpec(kind="drain", host="h2"), Cluster(
        hosts, {"t": TierNow(spec, placement)}, ("h3",) * 3, rules
    )


@pytest.mark.parametrize("more", [{"locality": {"t": "zone:a"}}, {"dedicated": {"h3": frozenset({BATCH})}}])
def test_batch_keeps_slots_on_hosts_that_the_short_tier_may_not_use(more):
    spec, cluster = short_beside_batch(**more)
    cluster = cluster.with_hosts(dedicated(cluster.hosts, cluster.rules))
    planned = plan(spec, cluster)
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(3, 1)]
    assert planned.batch_kept == planned.batch_slots == ("h3",) * 3
    assert not any("batch" in note for note in planned.notes)
    assert violations(planned, spec, aftermath(spec, cluster)) == []


def test_batch_returns_just_enough_for_a_slot_of_the_short_tier():
    spec, cluster = short_beside_batch()
    tiers = {
        "t": replace(cluster.tiers["t"], spec=spec_of("t", quantum=Quantum(cpu=2, memory=2048, threads=4)))
    }
    hosts = {
        **cluster.hosts,
        "h2": holding({"h2": host_of("h2", cpu=9)}, tiers["t"].spec, tiers["t"].placement)["h2"],
    }
    hosts |= {
        name: replace(hosts[name], capacity=Capacity(cpu=cpu, memory=8192))
        for name, cpu in (("h1", 4.5), ("h3", 3))
    }
    cluster = replace(cluster, hosts=hosts, tiers=tiers)
    planned = plan(spec, cluster)
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(3, 1)]
    assert planned.batch_kept == ("h3",)
    assert any(note.startswith("batch gives back 2 slots") for note in planned.notes)
    assert violations(planned, spec, aftermath(spec, cluster)) == []


def test_batch_gets_the_slots_that_fit():
    spec = spec_of("t")
    placement = Placement(driver="h1", slots=("h1",))
    hosts = holding({"h1": host_of("h1", cpu=3)}, spec, placement)
    shares = {"t": Share(target=1), BATCH: Share(minimum=0, target=0, maximum=4)}
    cluster = Cluster(
        hosts, {"t": TierNow(spec, placement)}, (), Rules(shares=shares, partitions=4, batch_quantum=SMALL)
    )
    scale = ChangeSpec(kind="scale", tier=BATCH, k=2)
    planned = plan(scale, cluster)
    assert planned.batch_slots == ("h1",)
    assert [note.partition(" until ")[0] for note in planned.notes] == ["1 batch slot(s) wait"]
    assert violations(planned, scale, aftermath(scale, cluster)) == []


def test_slots_that_batch_gives_back_are_noted_beside_short_tiers():
    spec = spec_of("t")
    placement = Placement(driver="h1", slots=("h1", "h1"))
    hosts = holding({"h1": host_of("h1")}, spec, placement)
    hosts["h1"] = hosts["h1"].holding(SMALL, 3)
    shares = {"t": Share(minimum=1, target=2, maximum=8), BATCH: Share(minimum=0, target=3, maximum=4)}
    rules = Rules(shares=shares, shifts={"day": {"t": Numbers(target=8)}}, partitions=8, batch_quantum=SMALL)
    planned = plan(
        ChangeSpec(kind="shift", shift="day"),
        Cluster(hosts, {"t": TierNow(spec, placement)}, ("h1",) * 3, rules),
    )
    assert [move.short for move in planned.moves] == [1]
    assert "batch gives back 3 slots, within 60 s" in planned.notes


def test_a_shift_moves_a_tier_into_the_room_that_it_takes_back_from_batch():
    spec = spec_of("t")
    placement = Placement(driver="h1", slots=("h1",))
    hosts = holding({"h1": host_of("h1", cpu=5.5, memory=32768)}, spec, placement)
    hosts["h1"] = hosts["h1"].holding(SMALL, 2)
    night = [("t", 1), (BATCH, 2)]
    layers = Layers(
        entries=tuple(
            LayerEntry(tenant=name, layer=Layer.SCHEDULE, target=k, owner="night", at=0.0)
            for name, k in night
        )
    )
    shares = {"t": Share(minimum=1, target=2, maximum=4), BATCH: Share(minimum=0, target=0, maximum=2)}
    rules = Rules(shares=shares, layers=layers, shifts={"day": {}}, partitions=4, batch_quantum=SMALL)
    cluster = Cluster(hosts, {"t": TierNow(spec, placement)}, ("h1", "h1"), rules)
    day = ChangeSpec(kind="shift", shift="day")
    planned = plan(day, cluster)
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(2, 0)]
    assert planned.batch_kept == ()
    assert violations(planned, day, aftermath(day, cluster)) == []
