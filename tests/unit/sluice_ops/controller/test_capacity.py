"""The capacity used on hosts is counted once in a pass, and then kept up to date with the pass's
decisions.
"""

from collections import Counter
from dataclasses import replace

import pytest

from sluice_ops.controller.pass_state import Draft, PassInputs
from sluice_ops.controller.policies import tier_lifecycle
from sluice_ops.controller.policies.capacity import _counted_hosts, cluster_of_draft
from sluice_ops.local.simulation.cluster import Size, unplanned
from sluice_ops.model.ids import Incarnation

SIZE = Size(12, 40)
SMALL = Size(4, 4)
"""On so few hosts, room that other tiers lack is computed for each tier."""


def placed_draft(size=SIZE):
    """Return a draft in which every tier has been placed."""
    draft = Draft(*unplanned(size))
    for tier in draft.end_first():
        tier_lifecycle.step(draft, tier)
    assert all(draft.unretired(tier.spec.name) for tier in draft.end_first())
    return draft


def next_draft(draft):
    """Return a draft of the same incarnations, as another pass sees them first."""
    seen = {
        name: replace(tier, incarnations=draft.incarnations[name], owner=draft.owners[name])
        for name, tier in draft.view.tiers.items()
    }
    return Draft(replace(draft.view, tiers=seen), PassInputs(now=0.0, lost=frozenset(), rules=draft.rules))


def check_counts(draft):
    counted = _counted_hosts(next_draft(draft))
    assert draft.counted_hosts.keys() == counted.keys()
    for name, host in draft.counted_hosts.items():
        assert (host.used_cpu, host.used_memory) == (
            pytest.approx(counted[name].used_cpu),
            counted[name].used_memory,
        )
        assert Counter(host.tiers) == Counter(counted[name].tiers)


@pytest.mark.parametrize("size", [SIZE, SMALL], ids=str)
def test_placed_incarnations_are_counted_and_reserved_room_is_not(size):
    check_counts(placed_draft(size))


def test_moved_slots_are_counted_only_on_their_new_hosts():
    draft = next_draft(placed_draft())
    cluster_of_draft(draft)
    name = next(iter(draft.incarnations))
    placement = draft.incarnations[name][Incarnation(1)].placement
    away, to = placement.slots[0], min(draft.view.hosts.keys() - {placement.slots[0]})
    slots = tuple(to if slot == away else slot for slot in placement.slots)
    draft.move_slots(name, Incarnation(1), slots)
    assert draft.counted_hosts[away].used_cpu < _counted_hosts(next_draft(placed_draft()))[away].used_cpu
    check_counts(draft)


def test_retired_incarnations_are_no_longer_counted():
    draft = next_draft(placed_draft())
    cluster_of_draft(draft)
    for name in draft.incarnations:
        draft.retire(name, Incarnation(1))
    check_counts(draft)
    assert not any(host.tiers for host in draft.counted_hosts.values())
