"""The rates of past weeks: learnt hour by hour, and told between the hours."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.planning.scaler.forecast import HOUR, HOURS, expected, learn

WEEK = HOUR * HOURS
MONDAY = 2944 * WEEK + 96 * HOUR


def learnt(rate, seconds, start=MONDAY, look=60.0, week=None):
    for number in range(int(seconds / look)):
        now = start + number * look
        week = learn(week, rate(now - start), now, look)
    return week


def test_nothing_is_expected_before_the_first_week_has_passed():
    week = learnt(lambda _: 500.0, 3 * 86400)
    assert expected(week, MONDAY + 4 * 86400, 600.0) == 0.0
    assert expected(None, MONDAY, 600.0) == 0.0


def test_a_daily_curve_is_expected_a_week_later_at_the_same_hours():
    def curve(seconds):
        return 1000 + 600 * math.sin(seconds / 86400 * 2 * math.pi)

    week = learnt(curve, WEEK + HOUR)
    for hours in (0.5, 7.25, 30.0, 100.9, 166.5):
        seconds = hours * HOUR
        assert expected(week, MONDAY + WEEK + seconds, 0.0) == pytest.approx(curve(seconds), rel=0.03)


def test_the_largest_rate_until_the_horizon_counts():
    week = learnt(lambda seconds: 900.0 if 2 * HOUR <= seconds < 3 * HOUR else 100.0, WEEK + HOUR)
    at = MONDAY + WEEK + HOUR
    assert expected(week, at, 0.0) == pytest.approx(100.0, rel=0.02)
    assert expected(week, at + 0.5 * HOUR, 900.0) == pytest.approx(300.0, rel=0.02)
    assert expected(week, at + 0.5 * HOUR, 3 * HOUR) == pytest.approx(900.0, rel=0.02)


def test_a_single_exceptional_hour_counts_half_as_much_each_week():
    at, week = 5 * HOUR, None
    rates = []
    for number in range(4):
        start = MONDAY + number * WEEK
        week = learnt(
            lambda seconds, first=number == 0: 1000.0 if first and at <= seconds < at + HOUR else 100.0,
            WEEK,
            start,
            week=week,
        )
        rates.append(expected(learn(week, 100.0, start + WEEK, 1.0), start + WEEK + at + HOUR / 2, 0.0))
    assert rates == pytest.approx([1000.0, 550.0, 325.0, 212.5], rel=0.02)


def test_an_hour_that_was_hardly_measured_does_not_count():
    week = learnt(lambda _: 500.0, HOUR / 3)
    week = learn(week, 500.0, MONDAY + HOUR, 60.0)
    assert expected(week, MONDAY + WEEK, 600.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(1, 5000)), max_size=60), st.floats(0, 1e4))
def test_no_rate_above_the_largest_measured_one_is_expected(looks, horizon):
    week, now = None, MONDAY
    for rate, seconds in looks:
        now += seconds
        week = learn(week, rate, now, seconds)
        assert 0.0 <= expected(week, now, horizon) <= max(rate for rate, _ in looks) * 1.001
