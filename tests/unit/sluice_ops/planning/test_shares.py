"""Shares in slots: whole quanta only, per cents that never exceed the cluster, and the layer that
set each number.
"""

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.resources import Capacity, Quantum
from sluice_ops.model.share import Layer, LayerEntry, Layers, Numbers, Setting, Share, part
from sluice_ops.planning.placement.cluster import TOLERANCE, Rules
from sluice_ops.planning.placement.shares import (
    Limits,
    capacity_totals,
    cause,
    limits,
    target,
    with_entry,
    without_entry,
)
from tests.unit.sluice_ops.planning.clusters import layers_after

capacities = st.lists(st.builds(Capacity, cpu=st.floats(0.5, 64), memory=st.integers(128, 65536)), max_size=8)
quanta = st.builds(Quantum, cpu=st.floats(0.1, 4), memory=st.integers(64, 4096), threads=st.integers(1, 8))


def rooms(hosts):
    return [(host.cpu, host.memory) for host in hosts]


@st.composite
def divided(draw):
    """Draw per cents with a sum of 100%, each with a tenant's quantum."""
    cuts = sorted(draw(st.lists(st.integers(0, 10000), max_size=5)))
    pairs = zip([0, *cuts], [*cuts, 10000], strict=True)
    return {
        f"t{number}": (f"{(after - before) / 100:.2f}%", draw(quanta))
        for number, (before, after) in enumerate(pairs)
    }


@given(capacities, divided())
def test_shares_of_100_per_cent_fit_into_the_hosts(hosts, tenants):
    rules = Rules(
        shares={
            name: Share(minimum=0, target=amount, maximum="100%") for name, (amount, _) in tenants.items()
        },
        capacity_totals=capacity_totals(
            rooms(hosts), {name: quantum for name, (_, quantum) in tenants.items()}
        ),
    )
    shares_held = [(target(name, rules).slots, quantum) for name, (_, quantum) in tenants.items()]
    assert sum(k * quantum.memory for k, quantum in shares_held) <= sum(host.memory for host in hosts)
    slack = TOLERANCE * sum(count for count in rules.capacity_totals.values())
    assert (
        sum(k * quantum.cpu for k, quantum in shares_held)
        <= sum(host.cpu for host in hosts) + slack + TOLERANCE
    )


@given(capacities, quanta)
def test_the_whole_is_exactly_the_quanta_that_fit_on_empty_hosts(hosts, quantum):
    total = capacity_totals(rooms(hosts), {"t": quantum})["t"]
    most = 0
    for host in hosts:
        k = 0
        while (k + 1) * quantum.memory <= host.memory and (k + 1) * quantum.cpu <= host.cpu + TOLERANCE:
            k += 1
        most += k
    assert abs(total - most) <= sum(
        math.isclose((host.cpu + TOLERANCE) / quantum.cpu % 1, 0, abs_tol=1e-9) for host in hosts
    )


@given(st.integers(0, 100), st.integers(0, 10**6))
def test_a_per_cent_is_rounded_down_to_whole_slots(per_cent, whole):
    slots = part(f"{per_cent}%", whole)
    assert isinstance(slots, int)
    assert Fraction(slots) <= Fraction(per_cent * whole, 100) < slots + 1


def test_per_cents_are_exact_where_floats_are_not():
    assert part("29%", 100) == 29  # 0.29 * 100 is 28.999999999999996
    assert part("0.1%", 1000) == 1
    assert part("100%", 7) == 7


@given(st.permutations([("minimum", 3), ("target", "50%"), ("maximum", "80%")]))
def test_each_number_of_a_share_may_be_slots_or_per_cent(numbers):
    rules = Rules(shares={"t": Share(**dict(numbers))}, capacity_totals={"t": 11})
    in_slots = limits("t", rules)
    assert (in_slots.minimum, in_slots.target, in_slots.maximum) == (3, 5, 8)


def test_a_share_in_per_cent_has_a_maximum_only_if_one_is_set():
    rules = Rules(shares={"t": Share(target="80%")}, capacity_totals={"t": 1000})
    assert target("t", rules).slots == 800
    assert (
        target("t", Rules(shares={"t": Share(target="80%", maximum=20)}, capacity_totals={"t": 1000})).slots
        == 20
    )


@pytest.mark.parametrize(
    "numbers",
    [{"minimum": 3, "maximum": 2}, {"minimum": "50%", "maximum": "40%"}, {"target": "110%"}, {"target": 1.5}],
)
def test_an_impossible_share_is_refused(numbers):
    with pytest.raises(ValidationError):
        Share(**numbers)


def entries(layer=None):
    return st.builds(
        LayerEntry,
        tenant=st.sampled_from(["t0", "t1"]),
        layer=st.sampled_from(Layer) if layer is None else st.just(layer),
        target=st.integers(0, 20) | st.integers(0, 100).map("{}%".format),
        owner=st.sampled_from(["anna", "ben"]),
        at=st.floats(0, 100),
        until=st.none() | st.floats(0, 100),
    )


@given(st.lists(entries()))
def test_a_layer_keeps_one_number_per_tenant_and_the_highest_wins(all_entries):
    layers = Layers()
    for entry in all_entries:
        layers = with_entry(layers, entry)
    rules = Rules(
        shares={"t0": Share(maximum="100%"), "t1": Share(maximum="100%")},
        layers=layers,
        capacity_totals={"t0": 20, "t1": 20},
    )
    for tenant in ("t0", "t1"):
        own_entries = [entry for entry in all_entries if entry.tenant == tenant]
        result = target(tenant, rules)
        if not own_entries:
            assert (result.layer, result.owner, result.until) == (Layer.BASE, "the site file", None)
            continue
        highest = max(entry.layer for entry in own_entries)
        last = [entry for entry in own_entries if entry.layer is highest][-1]
        assert (result.layer, result.owner, result.since, result.until, result.amount) == (
            highest,
            last.owner,
            last.at,
            last.until,
            last.target,
        )


@given(st.lists(entries()), st.floats(0, 100), st.sampled_from(["t0", "t1"]))
def test_only_expired_entries_are_removed(all_entries, now, tenant):
    layers = Layers(entries=tuple(all_entries))
    after = layers_after(
        ChangeSpec(kind="settle", tier=tenant, until=now),
        Rules(layers=layers),
        "the controller",
        now,
    )
    assert after.entries == tuple(
        e for e in all_entries if e.tenant != tenant or e.until is None or e.until > now
    )


def test_a_migrate_does_not_change_the_owner_of_a_number():
    rules = Rules(
        layers=layers_after(ChangeSpec(kind="scale", tier="t", k=3, until=9.0), Rules(), "anna", 1.0)
    )
    both = layers_after(ChangeSpec(kind="migrate", tier="t", to="h1"), rules, "ben", 2.0)
    result = target("t", Rules(layers=both))
    assert (result.slots, result.owner, result.until, result.to) == (3, "anna", 9.0, "h1")
    assert target("t", Rules(layers=without_entry(both, "t", Layer.PERSON, Setting.TARGET))).to == "h1"


def test_a_number_with_an_end_is_kept_even_if_it_is_the_usual_one():
    layers = layers_after(ChangeSpec(kind="scale", tier="t", k=1, until=9.0), Rules(), "anna", 1.0)
    assert [entry.target for entry in layers.entries] == [1]
    assert (
        layers_after(ChangeSpec(kind="scale", tier="t", k=1), Rules(layers=layers), "anna", 2.0) == Layers()
    )


optional_number = st.none() | st.integers(0, 20)


@given(
    st.lists(
        st.builds(SimpleNamespace, target=optional_number, minimum=optional_number, maximum=optional_number),
        max_size=4,
    )
)
def test_layers_set_minimum_and_maximum_too_and_both_always_hold(drawn_numbers):
    layers = zip(Layer, drawn_numbers, strict=False)
    all_layers = Layers(
        entries=tuple(
            LayerEntry(tenant="t", layer=layer, owner="x", at=0.0, **vars(numbers))
            for layer, numbers in layers
        )
    )
    rules = Rules(shares={"t": Share(minimum=2, target=3, maximum=9)}, layers=all_layers)
    within = limits("t", rules)
    assert (
        within.minimum
        == ([2] + [numbers.minimum for numbers in drawn_numbers if numbers.minimum is not None])[-1]
    )
    assert within.maximum == max(
        within.minimum,
        ([9] + [numbers.maximum for numbers in drawn_numbers if numbers.maximum is not None])[-1],
    )
    assert within.minimum <= target("t", rules).slots <= within.maximum


def test_a_shift_may_set_some_numbers_and_the_next_shift_removes_them():
    rules = Rules(
        shares={"t": Share(minimum=2, target=3, maximum=4)},
        shifts={"night": {"t": Numbers(minimum=1, target=1)}, "day": {}},
    )
    night = replace(rules, layers=layers_after(ChangeSpec(kind="shift", shift="night"), rules, "anna", 1.0))
    assert (limits("t", night).minimum, target("t", night).slots) == (1, 1)
    assert layers_after(ChangeSpec(kind="shift", shift="day"), night, "anna", 2.0) == Layers()
    assert Numbers.model_validate("80%") == Numbers(target="80%")


def test_a_number_decided_by_a_bound_names_the_owner_of_the_bound():
    entry = LayerEntry(tenant="t", layer=Layer.SCHEDULE, minimum=4, owner="shift night", at=1.0, until=9.0)
    rules = Rules(shares={"t": Share(minimum=1, target=2, maximum=6)}, layers=Layers(entries=(entry,)))
    result = target("t", rules)
    assert (result.slots, result.layer, result.owner, result.since, result.until) == (
        4,
        Layer.SCHEDULE,
        "shift night",
        1.0,
        9.0,
    )
    assert cause(result) == "that is its minimum, set by shift night"
    above = LayerEntry(tenant="t", layer=Layer.PERSON, target=9, owner="anna", at=2.0)
    result = target("t", replace(rules, layers=Layers(entries=(above,))))
    assert (result.slots, result.owner, result.bound) == (6, "anna", "maximum of the site file")
    assert target("t", replace(rules, layers=Layers())).bound is None


def test_the_autoscaler_layer_stands_above_shifts_and_below_a_person():
    night = LayerEntry(tenant="t", layer=Layer.SCHEDULE, target=2, owner="shift night", at=0.0)
    rules = Rules(shares={"t": Share(minimum=1, target=1, maximum=8)}, layers=Layers(entries=(night,)))

    def scaled(k, by, **more):
        nonlocal rules
        rules = replace(
            rules, layers=layers_after(ChangeSpec(kind="scale", tier="t", k=k, **more), rules, by, 1.0)
        )
        return target("t", rules).slots, target("t", rules).owner

    assert scaled(4, "keda", layer="autoscaler") == (4, "keda")
    assert scaled(6, "anna") == (6, "anna")
    assert scaled(5, "keda", layer="autoscaler") == (6, "anna")
    assert scaled(5, "anna") == (5, "keda"), (
        "a person's number equal to the layer below removes the person's entry"
    )
    assert scaled(2, "keda", layer="autoscaler") == (2, "shift night")
    assert rules.layers.entries == (night,)


def test_a_persons_minimum_and_maximum_hold_until_the_next_number():
    rules = Rules(shares={"t": Share(minimum=1, target=2, maximum=4)})
    scaled = replace(
        rules,
        layers=layers_after(
            ChangeSpec(kind="scale", tier="t", k=2, minimum=2, maximum=6), rules, "anna", 1.0
        ),
    )
    assert limits("t", scaled) == Limits(2, 2, 6)
    assert layers_after(ChangeSpec(kind="scale", tier="t", k=2), scaled, "anna", 2.0) == Layers()
