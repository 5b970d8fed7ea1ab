"""The control law of backpressure, for single reports; `test_backpressure_loop` closes the loop."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice_ops.model.admission import (
    BAND,
    LITTLE,
    MOST,
    SETTLE_SECONDS,
    admitted_rate,
    wanted_rate,
)
from sluice_ops.model.backpressure import Lag, Pressure, Watermarks

MARKS = Watermarks()
MIDDLE = Lag(records=60_000, seconds=75)
lags = st.builds(Lag, records=st.integers(0, 1_000_000), seconds=st.floats(0, 1000))
rates = st.floats(0.1, 1e6)


def pressure(wanted, came):
    return Pressure(stream="hits", lag=MIDDLE, since=1.0, rate_in=came, rate_wanted=wanted)


pressures = st.lists(st.builds(pressure, st.floats(0, 1e6), rates), min_size=1, max_size=4)


@given(rates)
def test_halfway_between_the_watermarks_the_lag_stays(rate):
    assert wanted_rate(MIDDLE, MARKS, rate) == pytest.approx(rate)


@given(lags, lags, rates)
def test_a_larger_lag_never_wants_more_records(lag, other, rate):
    larger = Lag(records=max(lag.records, other.records), seconds=max(lag.seconds, other.seconds))
    assert 0 <= wanted_rate(larger, MARKS, rate) <= wanted_rate(lag, MARKS, rate) <= MOST * rate


@given(lags)
def test_a_tier_that_processes_nothing_wants_nothing(lag):
    assert wanted_rate(lag, MARKS, 0.0) == wanted_rate(lag, MARKS, None) == 0


@given(rates)
def test_a_lag_that_is_too_large_by_the_settling_time_stops_the_entry(rate):
    records = MIDDLE.records + int(SETTLE_SECONDS * rate) + 1
    assert wanted_rate(Lag(records=records, seconds=0), MARKS, rate) == 0
    assert wanted_rate(Lag(records=0, seconds=MIDDLE.seconds + SETTLE_SECONDS), MARKS, rate) == 0


@given(rates, rates)
def test_a_rate_with_which_the_tier_is_content_stays(rate, came):
    assert admitted_rate(rate, rate, [pressure(came, came)]) == rate


@given(rates, rates, rates, rates)
def test_a_gate_takes_as_much_more_or_less_as_the_tier_wants(taken, came, wanted, share):
    """The count of records that each raw record becomes on the way to the tier is of no effect."""
    assume(taken / came > LITTLE and taken / (came * share) > LITTLE)
    expected = pytest.approx(taken * wanted / came, rel=0.01)
    assert admitted_rate(0.0, taken, [pressure(wanted, came)]) == expected
    assert admitted_rate(0.0, taken, [pressure(wanted * share, came * share)]) == expected


@given(st.floats(0, 1e6), st.none() | st.floats(0, 1e6), pressures)
def test_the_strictest_tier_decides(before, taken, given_pressures):
    each = [admitted_rate(0.0, taken, [one]) for one in given_pressures]
    assert admitted_rate(0.0, taken, given_pressures) == min(each)
    if min(one.rate_wanted for one in given_pressures) == 0:
        assert admitted_rate(before, taken, given_pressures) == 0


@given(rates, rates, st.floats(-0.2, 0.2))
def test_a_small_difference_changes_nothing(before, came, difference):
    assume(abs(abs(difference) - BAND) > 0.001)
    rate = admitted_rate(before, before, [pressure(came * (1 + difference), came)])
    assert (rate == before) is (abs(difference) < BAND)


def test_a_gate_whose_rate_is_not_known_keeps_its_rate_or_begins_low():
    assert admitted_rate(500.0, None, [pressure(900, 1000)]) == 500
    assert admitted_rate(500.0, None, [pressure(0, 1000)]) == 0
    assert admitted_rate(0.0, None, [pressure(900, 1000)]) == 900 * LITTLE


def test_a_gate_that_took_nothing_begins_again_when_the_tier_recovers():
    assert admitted_rate(0.0, 0.0, [pressure(900, 0.0)]) == 900 * LITTLE
    assert admitted_rate(0.0, 0.0, [pressure(900, 50.0)]) == 900 * LITTLE
