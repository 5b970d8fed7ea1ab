"""Smoothed figures: a step counts after seconds, and idle workers tell little of their capacity."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.planning.scaler.readings import LEAST_BUSY, SMOOTHING_SECONDS, elapsed, lag_grows, smooth
from sluice_ops.planning.scaler.signals import Signals


def look(rate=100.0, workers=2, busy=0.5, lag=0, fixed=0.0):
    return Signals(rate, rate, rate, busy, workers, lag, 0.0, starved=False, fixed=fixed)


def test_the_first_look_counts_fully():
    first = smooth(look(), 1000.0, None, changing=False)
    assert (first.rate_in, first.per_worker) == (100.0, 100.0)


def test_a_step_counts_63_per_cent_after_the_smoothing_time():
    before = smooth(look(), 1000.0, None, changing=False)
    after = smooth(look(rate=200.0), 1000.0 + SMOOTHING_SECONDS, before, changing=False)
    assert after.rate_in == pytest.approx(163.2, rel=0.001)


@given(st.floats(1, 100))
def test_many_looks_smooth_like_a_single_one(seconds):
    before = smooth(look(), 1000.0, None, changing=False)
    one = smooth(look(rate=200.0), 1000.0 + 2 * seconds, before, changing=False)
    two = smooth(look(rate=200.0), 1000.0 + seconds, before, changing=False)
    two = smooth(look(rate=200.0), 1000.0 + 2 * seconds, two, changing=False)
    assert two.rate_in == pytest.approx(one.rate_in, rel=1e-4)


def test_the_rate_of_a_worker_is_learnt_while_it_is_busy():
    before = smooth(look(), 1000.0, None, changing=False)
    assert smooth(look(rate=300.0), 1010.0, before, changing=True).per_worker == 100.0
    assert smooth(look(rate=0.0), 1010.0, before, changing=False).per_worker == 100.0
    assert smooth(look(rate=1.0, busy=0.001), 1010.0, before, changing=False).per_worker == 100.0
    idle = smooth(look(rate=30.0, busy=0.1), 1010.0, before, changing=False).per_worker
    busy = smooth(look(rate=300.0, busy=1.0), 1010.0, before, changing=False).per_worker
    assert 100.0 < idle < 110.0
    assert busy == pytest.approx(131.6, rel=0.01)


@given(st.floats(0.0, 0.9), st.floats(LEAST_BUSY, 1.0), st.floats(10.0, 1e5), st.integers(1, 50))
def test_the_fixed_time_of_batches_does_not_lower_the_rate(part, useful, speed, workers):
    rate, fixed = workers * speed * useful, min(part, 1 - useful)
    seen = look(rate, workers, fixed + useful, fixed=fixed)
    measured = smooth(seen, 1000.0, None, changing=False).per_worker
    assert measured == pytest.approx(speed, rel=1e-5)


@given(st.floats(0.0, 1.0), st.floats(LEAST_BUSY, 1.0))
def test_workers_have_at_least_the_rate_that_they_show(fixed, busy):
    measured = smooth(look(busy=busy, fixed=fixed), 1000.0, None, changing=False).per_worker
    assert 50.0 * (1 - 1e-5) <= measured <= 50.0 / LEAST_BUSY * (1 + 1e-5)


def grows(lags):
    """Return at which of these looks, 15 s apart, the lag grows; 100 records a second arrive."""
    found, reading = [], None
    for number, lag in enumerate(lags):
        reading = smooth(look(lag=lag), 1000.0 + 15.0 * number, reading, changing=False)
        found.append(lag_grows(look(lag=lag), reading))
    return found


def test_a_lag_grows_if_clearly_more_records_wait_than_in_the_last_minutes():
    assert grows([5, 1000]) == [False, True]
    assert any(grows(range(0, 6000, 300))), "20 of 100 records a second stay"
    assert not any(grows([5000, 4000, 3000, 2000, 1000, 0]))


def test_a_lag_that_stays_high_does_not_grow_any_more():
    assert grows([0, *[2000] * 9])[-1] is False


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_records_that_wait_for_the_next_batch_are_no_growing_lag(lags):
    assert not any(grows(lags))


def test_a_time_in_the_future_is_long_ago_because_the_clock_was_set_back():
    assert elapsed(1000.0, 990.0) == 10.0
    assert elapsed(1000.0, 1001.0) == math.inf
