"""Dry runs of a start and a stop: the tier's places, slots that batch gives back, and the time as
far as known.
"""

from dataclasses import replace

import pytest

from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.ids import BATCH
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Share
from sluice_ops.model.tier import Standby
from sluice_ops.planning.changes.plan import plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, RefusedError, Rules, TierNow, holding
from sluice_ops.planning.placement.pace import Pace
from tests.unit.sluice_ops.planning.clusters import SMALL, host_of, spec_of

START, STOP = (ChangeSpec(kind=kind, tier="t") for kind in ("start", "stop"))
TIMED = Pace(rest={"start": 11.0, "stop": 3.0})
HERE = Placement(driver="h1", slots=("h1", "h2"))


def cluster(*, lent=(), pace=TIMED, **now):
    """Return two hosts of three cores, and a tier of two workers."""
    shares = {
        "t": Share(minimum=1, target=2, maximum=4),
        BATCH: Share(minimum=0, target=len(lent), maximum=8),
    }
    tier = TierNow(spec_of("t"), **now)
    hosts = {name: host_of(name, cpu=3) for name in ("h1", "h2")}
    for name in lent:
        hosts[name] = hosts[name].holding(SMALL)
    if tier.placement is not None:
        hosts = holding(hosts, tier.spec, tier.placement)
    return Cluster(
        hosts, {"t": tier}, tuple(lent), Rules(shares=shares, partitions=8, batch_quantum=SMALL), pace
    )


def test_a_start_shows_places_and_time_and_no_gap():
    planned = plan(START, cluster())
    (move,) = planned.moves
    assert (move.before, sorted(move.after.slots)) == (None, ["h1", "h2"])
    assert planned.notes == ("t does not run now, so its start makes no gap",)
    assert (planned.predicted_seconds, planned.predicted_gap_seconds, planned.unpredicted) == (11.0, 0.0, "")
    assert violations(planned, START, cluster()) == []


def test_a_tier_starts_where_it_ran_last():
    last = Placement(driver="h2", slots=("h2", "h2"))
    (move,) = plan(START, cluster(last=last)).moves
    assert move.after == last


def test_without_an_earlier_start_no_time_is_predicted():
    planned = plan(START, cluster(pace=Pace()))
    assert planned.moves
    assert (planned.predicted_seconds, planned.unpredicted) == (
        0.0,
        "how long it takes, because no start has been timed here yet",
    )


def test_batch_makes_room_for_a_start():
    planned = plan(START, cluster(lent=("h1", "h1", "h1", "h2", "h2", "h2")))
    assert len(planned.moves[0].after.slots) == 2
    assert "batch gives back 3 slots first, within 60 s" in planned.notes


def test_a_start_with_fewer_slots_than_the_share_has_a_note():
    now = cluster()
    small = now.with_hosts({"h1": host_of("h1", cpu=1.5)})
    planned = plan(START, small)
    assert planned.moves[0].after.slots == ("h1",)
    assert "t gets 1 of its 2 slots: room is short" in planned.notes


def test_without_room_a_start_waits_for_an_unknown_time():
    planned = plan(START, cluster().with_hosts({"h1": host_of("h1", cpu=1)}))
    assert planned.moves == ()
    assert planned.notes[0].startswith('t would wait: the driver of tier "t":')
    assert planned.unpredicted == "how long the tier waits for room"


@pytest.mark.parametrize(
    ("paused", "state"), [(False, "runs, or the controller is about to restart it"), (True, "is paused")]
)
def test_a_running_tier_is_not_started(paused, state):
    planned = plan(START, cluster(placement=HERE, paused=paused))
    assert (planned.moves, planned.notes, planned.unpredicted) == (
        (),
        (f"t {state}: nothing is started",),
        "",
    )


def test_a_given_up_incarnation_releases_its_room_before_the_start():
    placement = Placement(driver="h1", slots=("h1", "h1"))
    (move,) = plan(START, cluster(placement=placement, last=placement, failed=True)).moves
    assert (move.before, move.after) == (placement, placement), "h1 has no room for the tier twice"


def test_the_start_of_a_paused_tier_has_a_note():
    assert plan(START, cluster(paused=True)).notes == (
        "t starts paused; to resume it, run `sluice resume t`",
    )


def test_a_stop_names_the_ending_units_and_the_missing_output():
    planned = plan(STOP, cluster(placement=HERE))
    assert planned.notes == (
        "t ends after its last commit: its driver on h1, its workers on h1, h2",
        "then t writes nothing until it is started again; its input waits in the streams",
    )
    assert (planned.moves, planned.predicted_seconds, planned.unpredicted) == ((), 3.0, "")
    assert (
        plan(STOP, cluster(placement=HERE, pace=Pace())).unpredicted
        == "how long it takes, because no stop has been timed here yet"
    )
    assert plan(STOP, cluster()).notes == ("t does not run: nothing is stopped",)


def test_a_stop_of_a_given_up_tier_ends_no_running_unit():
    planned = plan(STOP, cluster(placement=HERE, failed=True))
    assert planned.notes == ("t was given up: it is not started again, and its room becomes free",)


def test_a_standby_ends_with_its_tier():
    now = cluster(placement=HERE)
    spec = now.tiers["t"].spec.model_copy(update={"standby": Standby.WARM})
    planned = plan(STOP, replace(now, tiers={"t": TierNow(spec, HERE)}))
    assert planned.notes[0].endswith("its workers on h1, h2, and its standby")


@pytest.mark.parametrize("kind", ["start", "stop"])
def test_an_unknown_tier_is_refused(kind):
    with pytest.raises(RefusedError, match='there is no tier "u"; known tiers: t'):
        plan(ChangeSpec(kind=kind, tier="u"), cluster())
