"""What the hosts hold is counted once in a pass, and then kept true by what the pass decides."""

from collections import Counter
from dataclasses import replace

import pytest

from sluice_ops.controller.pass_state import Draft, Moment
from sluice_ops.controller.policies import tier_lifecycle
from sluice_ops.controller.policies.capacity import _count, cluster
from sluice_ops.local.simulation.cluster import Size, unplanned
from sluice_ops.model.ids import Incarnation

SIZE = Size(12, 40)
SMALL = Size(4, 4)
"""On so few hosts there is not plenty for what others lack: it is placed beside each tier."""


def begun(size=SIZE):
    """Return a draft in which every tier has been placed."""
    draft = Draft(*unplanned(size))
    for tier in draft.end_first():
        tier_lifecycle.step(draft, tier)
    assert all(draft.unretired(tier.spec.name) for tier in draft.end_first())
    return draft


def anew(draft):
    """Return the incarnations as another pass would see them, before it has decided anything."""
    seen = {
        name: replace(tier, incarnations=draft.incarnations[name], owner=draft.owners[name])
        for name, tier in draft.view.tiers.items()
    }
    return Draft(replace(draft.view, tiers=seen), Moment(now=0.0, lost=frozenset(), rules=draft.rules))


def agree(draft):
    counted = _count(anew(draft))
    assert draft.room.keys() == counted.keys()
    for name, host in draft.room.items():
        assert (host.used_cpu, host.used_memory) == (
            pytest.approx(counted[name].used_cpu),
            counted[name].used_memory,
        )
        assert Counter(host.tiers) == Counter(counted[name].tiers)


@pytest.mark.parametrize("size", [SIZE, SMALL], ids=str)
def test_what_was_begun_is_held_and_nothing_that_was_kept_for_others(size):
    agree(begun(size))


def test_slots_that_go_elsewhere_are_held_there_and_nowhere_else():
    draft = anew(begun())
    cluster(draft)
    name = next(iter(draft.incarnations))
    placement = draft.incarnations[name][Incarnation(1)].placement
    away, to = placement.slots[0], min(draft.view.hosts.keys() - {placement.slots[0]})
    slots = tuple(to if slot == away else slot for slot in placement.slots)
    draft.move_slots(name, Incarnation(1), slots)
    assert draft.room[away].used_cpu < _count(anew(begun()))[away].used_cpu
    agree(draft)


def test_what_is_retired_is_held_no_more():
    draft = anew(begun())
    cluster(draft)
    for name in draft.incarnations:
        draft.retire(name, Incarnation(1))
    agree(draft)
    assert not any(host.tiers for host in draft.room.values())
