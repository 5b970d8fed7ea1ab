"""Predicted times follow the times of the latest changes."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.change import ChangeRecord, ChangeSpec, ChangeState, Move, Plan, Step
from sluice_ops.model.incarnation import TRIAL_SECONDS, IncarnationSpec, Placement, Timed
from sluice_ops.planning.placement.pace import LAST, Pace, pace, widest_gap

PLACE = Placement(driver="h1", slots=("h1",))
TIMES = st.floats(0.1, 1000.0)


def change(number, moves=1, prepare=10.0, cut=2.0, gaps=(), state=ChangeState.DONE, kind="drain", more=None):
    return ChangeRecord(
        id=f"c{number}",
        spec=ChangeSpec(kind=kind, host="h1"),
        plan=Plan(moves=tuple(Move(tier=f"t{index}", before=PLACE, after=PLACE) for index in range(moves))),
        state=state,
        by="test",
        started_at=float(number),
        took={Step.PREPARE: prepare, Step.CUT: cut, **(more or {})},
        receipts={f"t{index}": {"gap_seconds": gap} for index, gap in enumerate(gaps)},
    )


def test_without_history_the_pace_is_the_measured_default():
    assert pace([]) == Pace()
    assert pace([change(2, state=ChangeState.ABORTED), change(3, state=ChangeState.ACTIVE)]) == Pace()
    assert pace([change(1, moves=0)]) == Pace(rest={**Pace().rest, "drain": 0.0})


def test_the_pace_is_the_median_of_the_latest_times_per_move():
    learnt = pace(
        [
            change(1, moves=2, prepare=20.0, cut=8.0, gaps=(0.2, 0.4)),
            change(2, prepare=12.0, cut=3.0, gaps=(0.1,)),
            change(3, prepare=90.0),
        ]
    )
    assert (learnt.prepare, learnt.cut, learnt.gap) == (12.0, 3.0, 0.25)
    assert learnt.seconds(2, 3) == 2 * 12.0 + 3 * 3.0


def test_the_time_of_workers_that_join_in_place_is_learnt():
    grown = Placement(driver="h1", slots=("h1", "h2"))
    grows = Plan(moves=(Move(tier="t", before=PLACE, after=grown, in_place=True),))
    shrinks = Plan(moves=(Move(tier="t", before=grown, after=PLACE, in_place=True),))
    joins = [change(n, cut=cut).model_copy(update={"plan": grows}) for n, cut in enumerate((9.0, 14.0, 11.0))]
    left = change(9, cut=1.0).model_copy(update={"plan": shrinks})
    assert pace([*joins, left]) == Pace(join_in_place=11.0, rest={**Pace().rest, "drain": 0.0})
    learnt = pace([*joins, change(10, prepare=20.0, cut=3.0)])
    assert (learnt.prepare, learnt.cut, learnt.join_in_place) == (20.0, 3.0, 11.0)
    assert learnt.seconds(0, 0, to_grow=1) == 11.0


def test_the_time_besides_moves_is_learnt_for_each_kind():
    rebooted = [
        change(
            number,
            kind="reboot",
            more={Step.PREFLIGHT: 900.0, Step.REBOOT: seconds, Step.HEALTH: 5.0},
        )
        for number, seconds in enumerate([30.0, 50.0, 300.0])
    ]
    assert pace([]).rest == {"upgrade": TRIAL_SECONDS}
    assert pace(rebooted).rest == {"upgrade": TRIAL_SECONDS, "reboot": 55.0}
    assert pace([change(1, moves=0, kind="upgrade")]).rest == pace([]).rest, (
        "without a move there was no trial"
    )


def timed_incarnation(number, start=None, stop=None):
    def timed(seconds):
        return Timed(by="test", at=float(number), predicted_seconds=None, seconds=seconds)

    times = {"start": timed(start), "stop": None if stop is None else timed(stop)}
    return IncarnationSpec(
        tier="t", incarnation=number, placement=PLACE, reason="cold start", created_at=float(number), **times
    )


def test_start_and_stop_times_are_learnt_from_finished_ones():
    learnt = pace(
        [],
        [
            timed_incarnation(1, 10.0, 2.0),
            timed_incarnation(2, 12.0, 4.0),
            timed_incarnation(3, 20.0),
            timed_incarnation(4),
        ],
    )
    assert (learnt.rest["start"], learnt.rest["stop"]) == (12.0, 3.0)
    assert learnt.unknown("start") == ""
    assert (
        pace([], [timed_incarnation(1)]).unknown("start")
        == "how long it takes, because no start has been timed here yet"
    )
    old = [timed_incarnation(number, 500.0) for number in range(1, LAST * 2)]
    assert (
        pace([], [timed_incarnation(100 + number, 5.0) for number in range(LAST)] + old).rest["start"] == 5.0
    )


def test_aborts_are_learnt_from_changes_that_had_begun():
    aborted = [
        change(number, state=ChangeState.ABORTED, more={Step.PREFLIGHT: 0.1, Step.ABORT: seconds})
        for number, seconds in enumerate([2.0, 9.0, 4.0])
    ]
    never = ChangeRecord(
        id="n",
        spec=aborted[0].spec,
        plan=Plan(),
        state=ChangeState.ABORTED,
        by="test",
        started_at=9.0,
        took={Step.ABORT: 0.1},
    )
    assert pace([*aborted, never]).abort == 4.0
    assert pace([never, change(1, more={Step.PREFLIGHT: 0.1, Step.ABORT: 1.0})]).abort is None


def test_only_the_latest_changes_count():
    old = [change(number, prepare=500.0) for number in range(LAST * 2)]
    new = [change(100 + number, prepare=5.0) for number in range(LAST)]
    assert pace([*new, *old]).prepare == 5.0


@given(st.lists(st.tuples(st.integers(1, 5), TIMES, TIMES), min_size=1, max_size=30))
def test_the_pace_lies_within_the_observed_times(observed):
    learnt = pace(
        change(number, moves, prepare, cut) for number, (moves, prepare, cut) in enumerate(observed)
    )
    per_move = [prepare / moves for moves, prepare, _ in observed]
    assert min(per_move) <= learnt.prepare <= max(per_move)


def test_the_widest_gap_is_the_tier_that_suffered_most():
    assert widest_gap(change(1, gaps=(0.2, None, 0.7))) == 0.7
    assert widest_gap(change(1, gaps=(None,))) is None
