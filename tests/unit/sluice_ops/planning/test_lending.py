"""Slots that batch gives back if several tiers are short: every slot that a tier can use, down to
batch's minimum, and no other slot.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.resources import Quantum
from sluice_ops.model.share import Numbers, Share
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from sluice_ops.planning.shortage.lending import giving_back
from tests.unit.sluice_ops.planning.clusters import SMALL, checked_plan, host_of, spec_of

BIG = Quantum(cpu=4, memory=4096, threads=4)
HALF = Quantum(cpu=0.5, memory=512, threads=4)


def lent_to(rooms, tiers, *, batch_minimum=0, shifts=None):
    """Return a cluster: tiers on h0, given as name, quantum, number and minimum; other hosts, given
    as cpu and slots of batch.
    """
    hosts = {"h0": host_of("h0", cpu=64, memory=65536)}
    hosts |= {
        f"h{number}": host_of(f"h{number}", cpu=cpu, memory=65536)
        for number, (cpu, _) in enumerate(rooms, start=1)
    }
    now = {}
    for name, quantum, k, _ in tiers:
        spec, placement = (
            spec_of(name, distance=len(now), quantum=quantum),
            Placement(driver="h0", slots=("h0",) * k),
        )
        hosts, now[name] = holding(hosts, spec, placement), TierNow(spec, placement)
    batch = tuple(f"h{number}" for number, (_, slots) in enumerate(rooms, start=1) for _ in range(slots))
    for name, count in Counter(batch).items():
        hosts[name] = hosts[name].holding(SMALL, count)
    shares = {name: Share(minimum=minimum, target=k, maximum=8) for name, _, k, minimum in tiers}
    shares[BATCH] = Share(minimum=min(batch_minimum, len(batch)), target=len(batch), maximum=64)
    return Cluster(
        hosts, now, batch, Rules(shares=shares, shifts=shifts or {}, partitions=8, batch_quantum=SMALL)
    )


DRAIN = ChangeSpec(kind="drain", host="h0")


def test_batch_returns_the_one_slot_that_one_of_two_short_tiers_can_use():
    cluster = lent_to([(6, 0), (3, 3), (3, 3)], [("big", BIG, 2, 1), ("small", SMALL, 2, 1)])
    planned = plan(DRAIN, cluster)
    assert [(move.tier, len(move.after.slots), move.short) for move in planned.moves] == [
        ("big", 1, 1),
        ("small", 2, 0),
    ]
    assert len(planned.batch_kept) == 5
    assert "batch gives back 1 slot, within 60 s" in planned.notes
    assert violations(planned, DRAIN, aftermath(DRAIN, cluster)) == []


def test_batch_keeps_its_minimum_in_slots_that_no_tier_can_use():
    cluster = lent_to([(5.5, 1), (4, 4), (1.5, 1)], [("big", BIG, 2, 1)], batch_minimum=2)
    planned = plan(DRAIN, cluster)
    assert [(len(move.after.slots), move.short) for move in planned.moves] == [(2, 0)]
    assert sorted(planned.batch_kept) == ["h1", "h3"]


def test_three_short_tiers_share_what_batch_has_above_its_minimum():
    tiers = [(name, SMALL, 3, 1) for name in ("a", "b", "c")]
    cluster = lent_to([(4.5, 0), (8, 8)], tiers, batch_minimum=4)
    planned = plan(DRAIN, cluster)
    assert Counter(planned.batch_kept) == {"h2": 4}
    assert sum(move.short for move in planned.moves) == 2, (
        "3 tiers of 3 with drivers ask 10.5 of 12.5 - 4 cpu"
    )
    assert violations(planned, DRAIN, aftermath(DRAIN, cluster)) == []


@st.composite
def changes(draw):
    """Draw a drain or a shift, with hosts full of batch, tiers on h0, and the minimum of batch."""
    rooms = [
        (cpu, draw(st.integers(0, int(cpu))))
        for cpu in draw(st.lists(st.sampled_from([1.5, 3.0, 4.0, 5.5, 7.0]), min_size=1, max_size=4))
    ]
    tiers = []
    for number in range(draw(st.integers(2, 4))):
        minimum = draw(st.integers(1, 2))
        tiers.append(
            (f"t{number}", draw(st.sampled_from([HALF, SMALL, BIG])), draw(st.integers(minimum, 4)), minimum)
        )
    numbers = {name: Numbers(target=draw(st.integers(minimum, 6))) for name, *_, minimum in tiers}
    cluster = lent_to(rooms, tiers, batch_minimum=draw(st.integers(0, 3)), shifts={"other": numbers})
    if draw(st.booleans()):
        return DRAIN, cluster
    few = replace(cluster.hosts["h0"], used_cpu=64 - draw(st.sampled_from([0, 1, 3, 8])))
    return ChangeSpec(kind="shift", shift="other"), cluster.with_hosts({**cluster.hosts, "h0": few})


@settings(max_examples=200)
@given(changes())
def test_batch_yields_all_usable_slots_above_its_minimum_and_no_others(drawn):
    spec, cluster = drawn
    planned = checked_plan(spec, cluster)
    if planned is None:
        return
    after = aftermath(spec, cluster)
    hosts = dict(giving_back(after, planned.batch_kept).hosts)
    for move in planned.moves:
        hosts = holding(hosts, cluster.tiers[move.tier].spec, move.after)
    spare = len(planned.batch_kept) - cluster.rules.shares[BATCH].minimum
    assert spare >= 0
    slots_kept = Counter(planned.batch_kept)
    for name, host in hosts.items():
        without = host.holding(SMALL, -min(slots_kept[name], spare))
        assert not [
            move.tier
            for move in planned.moves
            if move.short and without.takes(cluster.tiers[move.tier].spec.quantum)
        ]
    for name in Counter(cluster.batch) - Counter(planned.batch_kept):
        assert not hosts[name].takes(SMALL), "a slot that batch gave back is needed"


def test_batch_lends_slots_while_a_lowered_tier_shrinks_and_gets_them_back():
    cluster = lent_to([(7.5, 3)], [("t", SMALL, 3, 1)])
    placement = Placement(driver="h1", slots=("h1",) * 4)
    hosts = {"h1": holding({"h1": cluster.hosts["h1"]}, cluster.tiers["t"].spec, placement)["h1"]}
    stateful = cluster.tiers["t"].spec.model_copy(update={"state": True})
    cluster = replace(
        cluster, hosts=hosts, tiers={"t": replace(cluster.tiers["t"], spec=stateful, placement=placement)}
    )
    spec = ChangeSpec(kind="scale", tier="t", k=2)
    planned = plan(spec, cluster)
    assert [len(move.after.slots) for move in planned.moves] == [2]
    assert (len(planned.batch_kept), len(planned.batch_slots)) == (0, 3)
    assert violations(planned, spec, aftermath(spec, cluster)) == []
