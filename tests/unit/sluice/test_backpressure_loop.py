"""Backpressure in a closed loop: the control law, the reports of the lagging tier and the intake of
the entry, with a simulated pipeline.
"""

from itertools import pairwise

import pytest
from simulation.flow import Order, Pipeline, Rates, Stage, TwoThresholds

from sluice_ops.model.backpressure import Lag, Watermarks

SMALL = Watermarks(high=Lag(records=3_000, seconds=20), low=Lag(records=500, seconds=5))
BEGIN, END = 40.0, 500.0
"""The overload."""
SETTLE_SECONDS = 60.0
"""The time after which the lag has settled."""


def steady(rate):
    return lambda _now: rate


def overload(rate, end=END):
    """Offer a rate for some time, and little before and after."""
    return lambda now: rate if BEGIN <= now < end else rate * 0.25


def last(capacity, most=20_000, **more):
    return Stage("last", steady(capacity), most=most, **more)


def middle(capacity, name="middle"):
    return Stage(name, steady(capacity))


CASES = {
    "the last tier is slow": (14_000, 9_000, lambda: [middle(12_000), last(9_000)]),
    "a realtime tier is slow": (14_000, 9_000, lambda: [middle(12_000), last(9_000, most=0)]),
    "slightly too slow": (9_500, 9_000, lambda: [middle(12_000), last(9_000)]),
    "the middle tier is slow": (14_000, 9_000, lambda: [middle(9_000), last(12_000)]),
    "all are slow": (14_000, 9_000, lambda: [middle(9_000), middle(9_000, "next"), last(9_000)]),
    "one of ten records reaches the tier": (
        14_000,
        9_000,
        lambda: [
            middle(12_000),
            last(
                900,
                most=1_000,
                makes=0.1,
                marks=Watermarks(high=Lag(records=10_000, seconds=120), low=Lag(records=2_000, seconds=30)),
            ),
        ],
    ),
    "a record becomes twenty": (1_000, 450, lambda: [middle(12_000), last(9_000, makes=20)]),
    "slow batches and small watermarks": (340, 150, lambda: [last(150, most=1_000, marks=SMALL)]),
    "small watermarks, four times too much": (600, 150, lambda: [last(150, most=1_000, marks=SMALL)]),
}


def throttles(moments):
    return sum(
        before.order.culprit is None and after.order.culprit is not None
        for before, after in pairwise(moments)
    )


def part(moments, begin, end):
    return [moment for moment in moments if begin <= moment.now < end]


def throughput(moments, begin, end):
    within = part(moments, begin, end)
    return (within[-1].out - within[0].out) / (within[-1].now - within[0].now)


def most_waiting(moments, stage, begin, end):
    return max(moment.waiting[stage.name] for moment in part(moments, begin, end))


def sustained(stages, rate):
    """Return how many records the last stage gets of the highest sustainable rate of the entry."""
    for stage in stages:
        rate *= stage.makes
    return rate


both_modes = pytest.mark.parametrize(
    "batches", [False, True], ids=["realtime entry", "entry in micro-batches"]
)


@both_modes
@pytest.mark.parametrize("case", CASES)
def test_the_entry_takes_what_the_slowest_tier_takes(case, batches):
    rate, highest, stages = CASES[case]
    made = stages()
    moments = Pipeline(overload(rate), made, Rates(), batches=batches).run(END)
    begun = next(moment.now for moment in moments if moment.order.culprit is not None)
    assert throughput(moments, BEGIN + 5, END) > 0.95 * sustained(made, highest)
    assert throughput(moments, begun, END) > 0.98 * sustained(made, highest)
    assert throttles(moments) == 1, "the entry does not swing"
    slowest = min(made, key=lambda stage: stage.capacity(BEGIN) / stage.makes)
    assert {moment.order.culprit for moment in part(moments, begun, END)} == {slowest.name}
    for stage in made:
        assert most_waiting(moments, stage, 0, END) < 1.5 * stage.marks.high.records
        assert most_waiting(moments, stage, begun + SETTLE_SECONDS, END) < stage.marks.high.records


@both_modes
def test_after_an_overload_the_entry_flows_again(batches):
    rate, _, stages = CASES["the last tier is slow"]
    made = stages()
    moments = Pipeline(overload(rate, end=100), made, Rates(), batches=batches).run(300)
    end = moments[-1]
    assert throttles(moments) == 1
    assert (end.flows, end.order) == (True, Order())
    assert end.backlog + sum(end.waiting.values()) < rate


@both_modes
def test_without_overload_nothing_is_throttled(batches):
    stages = [middle(12_000), last(9_000)]
    moments = Pipeline(steady(8_900), stages, Rates(), batches=batches).run(300)
    assert throttles(moments) == 0
    assert all(moment.flows for moment in moments)


def test_two_thresholds_swing():
    """The law before lost 8 % of the throughput, and the lag rose above its limit again and
    again.
    """
    rate, highest, stages = CASES["the last tier is slow"]
    made = stages()
    moments = Pipeline(overload(rate), made, TwoThresholds()).run(END)
    assert 0.90 * highest < throughput(moments, 100, END) < 0.94 * highest
    assert throttles(moments) > 5
    assert min(moment.waiting["last"] for moment in part(moments, 100, END)) == 0
    assert most_waiting(moments, made[-1], 100, END) > 1.2 * made[-1].marks.high.records


def test_the_channel_is_written_once_in_four_seconds_at_most():
    rate, _, stages = CASES["the last tier is slow"]
    moments = part(Pipeline(overload(rate), stages(), Rates()).run(END), 100, END)
    written = [after.now for before, after in pairwise(moments) if before.order != after.order]
    assert len(written) < (END - 100) / 4


@pytest.mark.parametrize("makes", [0.1, 1, 20])
def test_an_outage_of_the_slow_tier_ends_without_a_swing(makes):
    """The tier processes nothing for a minute."""
    capacity = 900 if makes < 1 else 9_000
    high, low = Lag(records=10 * capacity, seconds=120), Lag(records=2 * capacity, seconds=30)
    slow = Stage(
        "last",
        lambda now: 0 if 200 <= now < 260 else capacity,
        most=2 * capacity,
        makes=makes,
        marks=Watermarks(high=high, low=low),
    )
    stages = [middle(20 * capacity / makes), slow]
    moments = Pipeline(overload(1.5 * capacity / makes), stages, Rates()).run(END)
    assert throttles(moments) == 1
    assert most_waiting(moments, slow, 200, 260) < 1.5 * high.records
    assert throughput(moments, 260, END) > 0.95 * capacity
    assert throughput(moments, 320, END) > 0.98 * capacity


def test_the_entry_follows_the_capacity_of_the_slow_tier():
    def capacity(now):
        return 9_000 if now < 150 else 4_500 if now < 300 else 11_000

    slow = Stage("last", capacity, most=20_000)
    moments = Pipeline(overload(14_000), [middle(13_000), slow], Rates()).run(END)
    assert throttles(moments) == 1
    for begin, end in ((BEGIN, 150), (150, 300), (300, END)):
        assert throughput(moments, begin + 5, end) > 0.95 * capacity(begin)
        assert most_waiting(moments, slow, begin, end) < 1.5 * slow.marks.high.records
        assert most_waiting(moments, slow, begin + SETTLE_SECONDS, end) < slow.marks.high.records
