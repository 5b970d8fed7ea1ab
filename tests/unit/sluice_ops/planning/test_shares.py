"""Shares in slots: exactly k·Q of everything, per cents that never add up to more than there is, and who set what."""

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
from sluice_ops.planning.changes.plan import layers_after
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

capacities = st.lists(st.builds(Capacity, cpu=st.floats(0.5, 64), memory=st.integers(128, 65536)), max_size=8)
quanta = st.builds(Quantum, cpu=st.floats(0.1, 4), memory=st.integers(64, 4096), threads=st.integers(1, 8))


def rooms(hosts):
    return [(host.cpu, host.memory) for host in hosts]


@st.composite
def divided(draw):
    """Draw per cents that are 100% in all, each with a tenant's quantum."""
    cuts = sorted(draw(st.lists(st.integers(0, 10000), max_size=5)))
    pairs = zip([0, *cuts], [*cuts, 10000], strict=True)
    return {
        f"t{number}": (f"{(after - before) / 100:.2f}%", draw(quanta))
        for number, (before, after) in enumerate(pairs)
    }


@given(capacities, divided())
def test_shares_of_100_per_cent_ask_for_no_more_than_the_hosts_have(hosts, tenants):
    rules = Rules(
        shares={
            name: Share(minimum=0, target=amount, maximum="100%") for name, (amount, _) in tenants.items()
        },
        capacity_totals=capacity_totals(
            rooms(hosts), {name: quantum for name, (_, quantum) in tenants.items()}
        ),
    )
    held = [(target(name, rules).slots, quantum) for name, (_, quantum) in tenants.items()]
    assert sum(k * quantum.memory for k, quantum in held) <= sum(host.memory for host in hosts)
    slack = TOLERANCE * sum(count for count in rules.capacity_totals.values())
    assert sum(k * quantum.cpu for k, quantum in held) <= sum(host.cpu for host in hosts) + slack + TOLERANCE


@given(capacities, quanta)
def test_the_whole_is_exactly_the_quanta_that_fit_on_empty_hosts(hosts, quantum):
    found = capacity_totals(rooms(hosts), {"t": quantum})["t"]
    most = 0
    for host in hosts:
        k = 0
        while (k + 1) * quantum.memory <= host.memory and (k + 1) * quantum.cpu <= host.cpu + TOLERANCE:
            k += 1
        most += k
    assert abs(found - most) <= sum(
        math.isclose((host.cpu + TOLERANCE) / quantum.cpu % 1, 0, abs_tol=1e-9) for host in hosts
    )


@given(st.integers(0, 100), st.integers(0, 10**6))
def test_a_per_cent_is_the_largest_whole_number_that_is_no_more(per_cent, whole):
    slots = part(f"{per_cent}%", whole)
    assert isinstance(slots, int)
    assert Fraction(slots) <= Fraction(per_cent * whole, 100) < slots + 1


def test_per_cents_are_exact_where_floats_are_not():
    assert part("29%", 100) == 29  # 0.29 * 100 is 28.999999999999996
    assert part("0.1%", 1000) == 1
    assert part("100%", 7) == 7


@given(st.permutations([("minimum", 3), ("target", "50%"), ("maximum", "80%")]))
def test_each_number_of_a_share_may_be_either(said):
    rules = Rules(shares={"t": Share(**dict(said))}, capacity_totals={"t": 11})
    found = limits("t", rules)
    assert (found.minimum, found.target, found.maximum) == (3, 5, 8)


def test_a_share_in_per_cent_has_no_maximum_of_its_own_unless_it_is_said():
    rules = Rules(shares={"t": Share(target="80%")}, capacity_totals={"t": 1000})
    assert target("t", rules).slots == 800
    assert (
        target("t", Rules(shares={"t": Share(target="80%", maximum=20)}, capacity_totals={"t": 1000})).slots
        == 20
    )


@pytest.mark.parametrize(
    "said",
    [{"minimum": 3, "maximum": 2}, {"minimum": "50%", "maximum": "40%"}, {"target": "110%"}, {"target": 1.5}],
)
def test_a_share_that_cannot_be_meant_is_refused(said):
    with pytest.raises(ValidationError):
        Share(**said)


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
def test_a_layer_says_one_thing_once_of_a_tenant_and_the_highest_one_holds(said):
    layers = Layers()
    for entry in said:
        layers = with_entry(layers, entry)
    rules = Rules(
        shares={"t0": Share(maximum="100%"), "t1": Share(maximum="100%")},
        layers=layers,
        capacity_totals={"t0": 20, "t1": 20},
    )
    for tenant in ("t0", "t1"):
        of_it = [entry for entry in said if entry.tenant == tenant]
        found = target(tenant, rules)
        if not of_it:
            assert (found.layer, found.owner, found.until) == (Layer.BASE, "the site file", None)
            continue
        highest = max(entry.layer for entry in of_it)
        last = [entry for entry in of_it if entry.layer is highest][-1]
        assert (found.layer, found.owner, found.since, found.until, found.amount) == (
            highest,
            last.owner,
            last.at,
            last.until,
            last.target,
        )


@given(st.lists(entries()), st.floats(0, 100), st.sampled_from(["t0", "t1"]))
def test_what_is_over_is_taken_back_and_nothing_else(said, now, tenant):
    layers = Layers(entries=tuple(said))
    after = layers_after(
        ChangeSpec(kind="settle", tier=tenant, until=now),
        Rules(layers=layers),
        "the controller",
        now,
    )
    assert after.entries == tuple(e for e in said if e.tenant != tenant or e.until is None or e.until > now)


def test_who_moves_a_tier_does_not_become_the_owner_of_its_number():
    rules = Rules(
        layers=layers_after(ChangeSpec(kind="scale", tier="t", k=3, until=9.0), Rules(), "anna", 1.0)
    )
    both = layers_after(ChangeSpec(kind="migrate", tier="t", to="h1"), rules, "ben", 2.0)
    found = target("t", Rules(layers=both))
    assert (found.slots, found.owner, found.until, found.to) == (3, "anna", 9.0, "h1")
    assert target("t", Rules(layers=without_entry(both, "t", Layer.PERSON, Setting.TARGET))).to == "h1"


def test_a_number_with_an_end_holds_even_where_it_is_the_usual_one():
    layers = layers_after(ChangeSpec(kind="scale", tier="t", k=1, until=9.0), Rules(), "anna", 1.0)
    assert [entry.target for entry in layers.entries] == [1]
    assert (
        layers_after(ChangeSpec(kind="scale", tier="t", k=1), Rules(layers=layers), "anna", 2.0) == Layers()
    )


some = st.none() | st.integers(0, 20)


@given(st.lists(st.builds(SimpleNamespace, target=some, minimum=some, maximum=some), max_size=4))
def test_minimum_and_maximum_are_said_in_layers_too_and_always_hold(said):
    layers = zip(Layer, said, strict=False)
    made = Layers(
        entries=tuple(
            LayerEntry(tenant="t", layer=layer, owner="x", at=0.0, **vars(numbers))
            for layer, numbers in layers
        )
    )
    rules = Rules(shares={"t": Share(minimum=2, target=3, maximum=9)}, layers=made)
    within = limits("t", rules)
    assert within.minimum == ([2] + [numbers.minimum for numbers in said if numbers.minimum is not None])[-1]
    assert within.maximum == max(
        within.minimum, ([9] + [numbers.maximum for numbers in said if numbers.maximum is not None])[-1]
    )
    assert within.minimum <= target("t", rules).slots <= within.maximum


def test_a_shift_may_say_some_of_the_numbers_and_gives_all_of_them_back():
    rules = Rules(
        shares={"t": Share(minimum=2, target=3, maximum=4)},
        shifts={"night": {"t": Numbers(minimum=1, target=1)}, "day": {}},
    )
    night = replace(rules, layers=layers_after(ChangeSpec(kind="shift", shift="night"), rules, "anna", 1.0))
    assert (limits("t", night).minimum, target("t", night).slots) == (1, 1)
    assert layers_after(ChangeSpec(kind="shift", shift="day"), night, "anna", 2.0) == Layers()
    assert Numbers.model_validate("80%") == Numbers(target="80%")


def test_a_number_that_a_bound_decides_is_the_word_of_who_set_the_bound():
    entry = LayerEntry(tenant="t", layer=Layer.SCHEDULE, minimum=4, owner="shift night", at=1.0, until=9.0)
    rules = Rules(shares={"t": Share(minimum=1, target=2, maximum=6)}, layers=Layers(entries=(entry,)))
    found = target("t", rules)
    assert (found.slots, found.layer, found.owner, found.since, found.until) == (
        4,
        Layer.SCHEDULE,
        "shift night",
        1.0,
        9.0,
    )
    assert cause(found) == "that is its minimum, set by shift night"
    above = LayerEntry(tenant="t", layer=Layer.PERSON, target=9, owner="anna", at=2.0)
    found = target("t", replace(rules, layers=Layers(entries=(above,))))
    assert (found.slots, found.owner, found.bound) == (6, "anna", "maximum of the site file")
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
    assert scaled(5, "anna") == (5, "keda"), "a person who says what holds below takes the own word back"
    assert scaled(2, "keda", layer="autoscaler") == (2, "shift night")
    assert rules.layers.entries == (night,)


def test_a_persons_minimum_and_maximum_hold_until_the_next_number():
    rules = Rules(shares={"t": Share(minimum=1, target=2, maximum=4)})
    said = replace(
        rules,
        layers=layers_after(
            ChangeSpec(kind="scale", tier="t", k=2, minimum=2, maximum=6), rules, "anna", 1.0
        ),
    )
    assert limits("t", said) == Limits(2, 2, 6)
    assert layers_after(ChangeSpec(kind="scale", tier="t", k=2), said, "anna", 2.0) == Layers()
