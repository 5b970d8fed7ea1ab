"""A number that is lowered takes that many workers away, and more only for a time, where no more find room beside those that run."""

import pytest

from ops.model.incarnation import Placement
from ops.model.operation import ChangeKind, ChangeSpec
from ops.model.share import Numbers, Share
from ops.planning.checker import violations
from ops.planning.cluster import Cluster, RefusedError, Rules, TierNow, holding
from ops.planning.plan import aftermath, plan
from tests.unit.planning.clusters import SMALL, host_of, spec_of


def beside(cpu, numbers, **hosts):
    """Have a tier run with each first number, of which a shift makes the second: on h1 with so much cpu, or on the host that it names."""
    found = {name: host_of(name, cpu=cpu, memory=65536) for name in {"h1", *hosts.values()}}
    tiers, shares = {}, {}
    for name, (k, _) in numbers.items():
        at = hosts.get(name, "h1")
        spec, placement = spec_of(name, distance=len(tiers)), Placement(driver=at, slots=(at,) * k)
        found, tiers[name] = holding(found, spec, placement), TierNow(spec, placement)
        shares[name] = Share(minimum=1, target=k, maximum=8)
    shifts = {"night": {name: Numbers(target=k) for name, (_, k) in numbers.items()}}
    return Cluster(found, tiers, (), Rules(shares=shares, shifts=shifts, locality=hosts, partitions=8, batch_quantum=SMALL))


NIGHT = ChangeSpec(kind=ChangeKind.SHIFT, shift="night")


@pytest.mark.parametrize(("cpu", "slots"), [(8, 3), (7, 2), (6, 1)])
def test_a_shift_that_lowers_a_tier_takes_more_only_where_no_more_stand_beside_what_it_has_and_says_so(cpu, slots):
    planned = plan(NIGHT, beside(cpu, {"t": (4, 3)}))
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(slots, 3 - slots)]
    said = (
        f"t gets {slots} slots, {3 - slots} fewer than its share, until the 4 that it has are gone: beside these there is room for no more"
    )
    assert (said in planned.notes) is (slots < 3)


@pytest.mark.parametrize(
    ("cpu", "first"),
    [(7, "there is room for 2 beside them, so `sluice scale t 2`, and `sluice scale t 3` when that is done; or "), (5, "")],
)
def test_a_number_that_cannot_be_lowered_for_want_of_room_is_refused_with_the_ways_to_it(cpu, first):
    with pytest.raises(RefusedError) as refused:
        plan(ChangeSpec(kind=ChangeKind.SCALE, tier="t", k=3), beside(cpu, {"t": (4, 3)}))
    assert str(refused.value).endswith(
        "To have fewer workers t is handed over, and for a moment 3 stand beside the 4 that it has: "
        f"{first}with a gap in its output, `sluice stop t`, `sluice scale t 3`, `sluice start t`"
    )


def test_a_number_that_cannot_be_raised_for_want_of_room_is_refused_without_these_ways():
    with pytest.raises(RefusedError, match=r"or lower a share$"):
        plan(ChangeSpec(kind=ChangeKind.SCALE, tier="t", k=5), beside(7, {"t": (4, 3)}))


def test_a_tier_that_is_lowered_gives_up_what_was_asked_though_room_is_short_for_another_that_is_raised():
    cluster = beside(12, {"down": (4, 3), "up": (1, 8)})
    planned = plan(NIGHT, cluster)
    assert [(move.tier, len(move.after.slots), move.short) for move in planned.moves] == [("down", 3, 0), ("up", 6, 2)]
    assert violations(planned, NIGHT, aftermath(NIGHT, cluster)) == []


def test_of_two_tiers_that_are_lowered_the_one_for_which_there_is_room_gives_up_no_more_for_the_other():
    cluster = beside(8, {"near": (4, 3), "far": (5, 4)}, near="h1", far="h2")
    planned = plan(NIGHT, cluster)
    assert [(move.tier, len(move.after.slots), move.short) for move in planned.moves] == [("near", 3, 0), ("far", 2, 2)]
