"""The pipeline's share: a ceiling for all tiers, and a minimum for which batch gives slots back."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Layer, LayerEntry, Layers, PipelineShare, Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.pipeline_share import Ask, divide, taken
from sluice_ops.planning.placement.shares import (
    OF_PIPELINE,
    cause,
    divided_share,
    left_of_share,
    limits,
    most_beside_others,
    target,
)
from tests.unit.sluice_ops.planning.clusters import SMALL, host_of, spec_of

sizes = st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(1, 10), Fraction(1, 7)])
asks = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(Ask, st.integers(0, 3), st.integers(0, 12), st.integers(0, 3), sizes),
    min_size=1,
)
rooms = st.fractions(0, 20, max_denominator=21)


def total(division, asked):
    return taken({name: sum(slots) for name, slots in division.items()}, size_of(asked))


def size_of(asked):
    return {name: ask.size for name, ask in asked.items()}


def of_minimums(asked):
    return taken({name: min(ask.fewest, ask.slots) for name, ask in asked.items()}, size_of(asked))


@given(asks, rooms)
def test_tiers_never_have_more_than_the_ceiling_or_their_minimums(asked, room):
    division = divide(asked, room)
    assert total(division, asked) <= max(room, of_minimums(asked))
    for name, (slots, spare) in division.items():
        assert min(asked[name].fewest, asked[name].slots) <= slots <= asked[name].slots
        assert 0 <= spare <= asked[name].spare


@given(asks, rooms)
def test_room_is_left_over_only_if_no_whole_slot_fits(asked, room):
    division = divide(asked, room)
    left = room - total(division, asked)
    for name, (slots, spare) in division.items():
        if (slots, spare) != (asked[name].slots, asked[name].spare):
            assert left < asked[name].size


@given(asks, st.integers(0, 40), st.integers(0, 10))
def test_no_tier_loses_slots_when_the_room_grows(asked, room, more):
    alike = {name: replace(ask, size=Fraction(1)) for name, ask in asked.items()}
    before, after = divide(alike, Fraction(room)), divide(alike, Fraction(room + more))
    assert all(after[name][0] >= before[name][0] for name in alike)


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1), st.integers(0, 30))
def test_equal_asks_differ_by_at_most_one_slot(order, room):
    alike = {name: Ask(0, 9, 0, Fraction(1)) for name in order}
    slots = [slots for slots, _ in divide(alike, Fraction(room)).values()]
    assert max(slots) - min(slots) <= 1
    assert sum(slots) == min(room, 9 * len(slots))


def test_spares_give_way_before_workers():
    asked = {"a": Ask(1, 3, 2, Fraction(1)), "b": Ask(1, 3, 1, Fraction(1))}
    assert divide(asked, Fraction(7)) == {"a": (3, 1), "b": (3, 0)}
    assert divide(asked, Fraction(4)) == {"a": (2, 0), "b": (2, 0)}


# -- in the rules


def rules(share, total=10, *, layers=(), **shares):
    """Return rules of a cluster with `total` slots for each tenant."""
    return Rules(
        shares={name: Share.model_validate(each) for name, each in shares.items()},
        pipeline_share=None if share is None else PipelineShare.model_validate(share),
        capacity_totals=dict.fromkeys(shares, total),
        layers=Layers(entries=tuple(layers)),
    )


def slots(rules):
    return {name: target(name, rules).slots for name in rules.tiers}


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (None, {"a": 6, "b": 4}),
        ("100%", {"a": 6, "b": 4}),
        ("80%", {"a": 5, "b": 3}),
        ("79%", {"a": 4, "b": 3}),
        (8, {"a": 5, "b": 3}),
        ({"minimum": "10%", "maximum": 2}, {"a": 1, "b": 1}),
    ],
)
def test_the_ceiling_holds_in_whole_quanta(share, expected):
    assert slots(rules(share, a={"target": 6}, b={"target": 4})) == expected


def test_a_pipeline_with_80_per_cent_follows_hosts_that_come_and_go():
    by_hosts = [
        slots(rules("80%", total, a={"minimum": 1, "target": "60%"}, b={"minimum": 1, "target": "40%"}))
        for total in (5, 10, 20, 10)
    ]
    assert [sum(each.values()) for each in by_hosts] == [4, 8, 16, 8]
    assert by_hosts[1] == by_hosts[3]


def test_quanta_of_different_sizes_take_their_part_of_the_cluster():
    mixed = replace(
        rules("50%", a={"target": 4}, b={"target": 4}), capacity_totals={"a": 10, "b": 20, BATCH: 10}
    )
    held = slots(mixed)
    assert Fraction(held["a"], 10) + Fraction(held["b"], 20) <= Fraction(1, 2)
    assert held == {"a": 3, "b": 4}


def test_minimums_above_the_ceiling_are_kept():
    squeezed = rules("50%", a={"minimum": 4, "target": 6}, b={"minimum": 3, "target": 3})
    assert slots(squeezed) == {"a": 4, "b": 3}
    left = left_of_share({name: sum(held) for name, held in divided_share(squeezed).items()}, squeezed)
    assert left == Fraction(-2, 10)


def test_a_realtime_tier_keeps_a_thread_for_each_partition():
    squeezed = replace(rules("30%", a={"target": 4}, b={"target": 4}), fewest={"a": 3})
    assert slots(squeezed) == {"a": 3, "b": 1}


def test_a_bounded_tier_says_that_the_pipeline_has_its_maximum():
    aim = target("a", rules("50%", a={"target": 6}, b={"target": 4}))
    assert (aim.bound, cause(aim)) == (OF_PIPELINE, "the pipeline has its maximum")


per_cents = st.integers(0, 100).map("{}%".format)
amounts = st.integers(0, 12) | per_cents


@given(st.data(), st.integers(1, 20))
def test_batch_leaves_what_the_tiers_need_of_the_minimum(data, whole):
    low = data.draw(amounts)
    share = {"minimum": low, "maximum": "100%" if isinstance(low, str) else 40}
    wants = {name: {"minimum": 0, "target": data.draw(st.integers(0, 8))} for name in "ab"}
    own = data.draw(st.integers(0, 12))
    bounded = rules(share, whole, **wants, **{BATCH: {"minimum": own, "target": own, "maximum": 40}})
    needed = sum(slots(bounded).values())
    promised = min(needed, low) if isinstance(low, int) else min(needed, Fraction(low[:-1]) * whole / 100)
    kept = limits(BATCH, bounded).minimum
    assert kept <= own
    assert kept == own or kept <= max(0, whole - promised) < kept + 1


def test_batch_keeps_its_minimum_while_the_tiers_need_nothing():
    batch = {"minimum": 4, "target": 4}
    assert limits(BATCH, rules("80%", a={"minimum": 0, "target": 2}, batch=batch)).minimum == 4
    assert limits(BATCH, rules("80%", a={"minimum": 0, "target": 7}, batch=batch)).minimum == 3
    assert limits(BATCH, rules("80%", a={"minimum": 0, "target": 9}, batch=batch)).minimum == 2


# -- in plans


def cluster_with(rules, cpu=16.0, **held):
    """Return a cluster of two hosts, on which each tenant has so many slots."""
    hosts = {name: host_of(name, cpu=cpu, memory=32768) for name in ("h1", "h2")}
    tiers = {}
    for name, count in held.items():
        if name != BATCH:
            spec = spec_of(name)
            now = Placement(driver="h1", slots=tuple(("h1", "h2")[i % 2] for i in range(count)))
            tiers[name] = TierNow(spec=spec, placement=now)
            hosts = holding(hosts, spec, now)
    batch = tuple(("h1", "h2")[number % 2] for number in range(held.get(BATCH, 0)))
    for name in batch:
        hosts[name] = hosts[name].holding(rules.batch_quantum)
    return Cluster(hosts, tiers, batch, replace(rules, partitions=16, batch_quantum=SMALL))


def settled(tier, cluster):
    spec = ChangeSpec(kind="settle", tier=tier)
    made = plan(spec, cluster)
    assert not violations(made, spec, aftermath(spec, cluster))
    return made


@given(st.integers(2, 8), st.integers(2, 6), st.sampled_from(["30%", "50%", "60%", "80%", 4, 7]))
def test_one_settle_of_each_tier_brings_the_pipeline_to_its_share(a, b, share):
    bounded = rules(share, a={"target": a}, b={"target": b})
    cluster = cluster_with(bounded, a=a, b=b)
    for name in ("a", "b"):
        for move in settled(name, cluster).moves:
            now = replace(cluster.tiers[move.tier], placement=move.after)
            cluster = replace(cluster, tiers={**cluster.tiers, move.tier: now})
    held = {name: len(tier.placement.slots) for name, tier in cluster.tiers.items()}
    assert held == slots(bounded)
    assert left_of_share(held, cluster.rules) >= 0 or held == {"a": 1, "b": 1}
    assert not [move for name in held for move in settled(name, cluster).moves]


def test_a_plan_beyond_the_ceiling_does_not_pass_the_check():
    bounded = rules("50%", a={"target": 6}, b={"target": 4})
    cluster, spec = cluster_with(bounded, a=6, b=4), ChangeSpec(kind="settle", tier="a")
    cluster.rules.divided.update(a=(6, 0), b=(4, 0))
    assert "a, b would get more than the pipeline's maximum of 50% leaves" in violations(
        plan(spec, cluster), spec, cluster
    )


def scale(tier, k, cluster):
    return plan(ChangeSpec(kind="scale", tier=tier, k=k), cluster)


def test_a_scale_that_would_take_slots_from_other_tiers_is_refused():
    bounded = rules("80%", a={"target": 3, "maximum": 9}, b={"target": 4, "maximum": 9})
    cluster = cluster_with(bounded, a=3, b=4)
    assert most_beside_others("a", bounded) == 4
    assert [len(move.after.slots) for move in scale("a", 4, cluster).moves] == [4]
    with pytest.raises(RefusedError) as refused:
        scale("a", 6, cluster)
    assert str(refused.value) == (
        'tier "a": the tiers have at most 80% together, which leaves 4 slots for a; ask for less, lower '
        "another tier with `sluice scale TIER K`, or raise pipeline_share.maximum in the site file"
    )


def test_a_scale_down_is_possible_above_the_ceiling():
    entry = LayerEntry(tenant="a", layer=Layer.PERSON, target=6, owner="anna", at=0.0)
    bounded = rules("50%", layers=[entry], a={"target": 3, "maximum": 9}, b={"target": 4, "maximum": 9})
    assert [len(move.after.slots) for move in scale("a", 1, cluster_with(bounded, a=3, b=2)).moves] == [1]


def test_batch_gives_back_below_its_own_minimum_for_the_pipelines():
    share = {"minimum": "80%", "maximum": "100%"}
    bounded = rules(share, a={"target": 8, "maximum": 9}, batch={"minimum": 6, "target": 6})
    made = settled("a", cluster_with(bounded, cpu=5.5, a=4, batch=6))
    assert len(made.batch_kept) == 2
    assert [len(move.after.slots) for move in made.moves] == [8]
    alone = replace(bounded, pipeline_share=None)
    assert len(settled("a", cluster_with(alone, cpu=5.5, a=4, batch=6)).batch_kept) == 6
