"""How many records a tier takes while it is throttled, and when it catches up afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.engine.intake import (
    GROWTH,
    LATE_SECONDS,
    LITTLE,
    ROUND_SECONDS,
    SILENT_SECONDS,
    START_SECONDS,
    Intake,
    portion,
)

offsets = st.dictionaries(
    st.sampled_from([f"raw/{number}" for number in range(6)]),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    min_size=1,
)


@given(offsets, st.integers(1, 3000))
def test_an_intake_is_as_large_as_allowed_and_starves_no_partition(ranges, most):
    begins = {name: first for name, (first, _) in ranges.items()}
    ends = {name: first + more for name, (first, more) in ranges.items()}
    until = portion(begins, ends, most)
    taken = {name: until[name] - begins[name] for name in begins}
    assert all(0 <= taken[name] <= ends[name] - begins[name] for name in begins)
    assert sum(taken.values()) == min(most, sum(ends.values()) - sum(begins.values()))


def taken(intake, begun, seconds, admitted=None):
    """Take all allowed records four times a second, and return their number."""
    times = (begun + quarter / 4 for quarter in range(int(seconds * 4)))
    return sum(intake.allowance(now, silent=0.0, admitted=admitted) for now in times)


def test_a_throttled_tier_takes_nothing_at_rate_zero_with_a_controller():
    assert taken(Intake(1000), 0.0, 10_000, admitted=0.0) == 0


def test_without_a_controller_a_few_records_are_taken_at_intervals():
    intake = Intake(1000)
    total = sum(intake.allowance(float(second), silent=float(second), admitted=0.0) for second in range(3600))
    times = 3600 / SILENT_SECONDS - 1
    assert total == times * 1000 * LITTLE


def test_without_a_controller_an_admitted_rate_stays():
    intake = Intake(1000)
    assert sum(intake.allowance(now / 4, silent=now / 4, admitted=30.0) for now in range(4 * 3600)) == 108_000


@pytest.mark.parametrize("rate", [0.05, 0.7, 40, 333.3, 25_000])
def test_a_throttled_tier_takes_records_at_the_admitted_rate(rate):
    assert taken(Intake(1000), 0.0, 600, rate) == pytest.approx(600 * rate, rel=0.01, abs=1)


@given(st.lists(st.tuples(st.floats(0, 5000), st.floats(0.25, 20)), min_size=1, max_size=20))
def test_never_more_is_taken_than_the_rates_allow(orders):
    intake, now, total, allowed = Intake(1000), 0.0, 0, 0.0
    for rate, seconds in orders:
        total += taken(intake, now, seconds, rate)
        now += seconds
        allowed += rate * (seconds + 2 * LATE_SECONDS)
    assert total <= allowed + 1


def test_a_late_round_makes_up_for_the_time_of_a_long_job():
    intake = Intake(10_000)
    for second in (0.0, 2.5, 5.0):
        allowed = intake.allowance(second, silent=0.0, admitted=100)
    assert allowed == 250
    assert intake.allowance(1000.0, silent=0.0, admitted=100) == 100 * LATE_SECONDS, "no burst after a rest"


def test_a_tier_that_took_nothing_starts_with_one_batch_and_grows():
    intake = Intake(1000)
    assert intake.allowance(0.0, silent=0.0, admitted=0.0) == 0
    first = taken(intake, 0.0, ROUND_SECONDS)
    assert first == 1000, "no report of a lag can have arrived yet"
    rates = [taken(intake, ROUND_SECONDS * number, ROUND_SECONDS) / ROUND_SECONDS for number in range(1, 20)]
    assert rates[0] == pytest.approx(GROWTH * 1000 / START_SECONDS, rel=0.01)
    assert rates[18] == pytest.approx(GROWTH**19 * 1000 / START_SECONDS, rel=0.01)


def test_a_tier_that_cannot_take_more_gets_no_larger_rounds():
    intake, now = Intake(1000), 0.0
    for _ in range(100):
        allowed = intake.allowance(now, silent=0.0, admitted=None)
        now += allowed / 5000 + 0.25
    assert 0.8 * 5000 * ROUND_SECONDS < allowed < 2.5 * 5000 * ROUND_SECONDS


def test_a_released_tier_continues_from_its_last_rate():
    intake = Intake(1000)
    taken(intake, 0.0, 60, 200)
    assert taken(intake, 60.0, ROUND_SECONDS) == 200 * ROUND_SECONDS
    assert taken(intake, 60.0 + ROUND_SECONDS, ROUND_SECONDS) == 200 * GROWTH * ROUND_SECONDS
    taken(intake, 70.0, 10, 0.0)
    assert taken(intake, 80.0, ROUND_SECONDS) == 200 * GROWTH * ROUND_SECONDS, "a stop forgets no rate"
