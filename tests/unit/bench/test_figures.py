"""Figures of a time window of records, on windows with a known answer."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import (
    PERCENTS,
    Arrival,
    disturbance,
    first_of_each,
    has_no_lag,
    highest_sustained,
    longest_gap,
    milliseconds,
    percentile,
)


def arrival(number: int, at: float, *, late: float = 0.002, new: bool = True) -> Arrival:
    return Arrival(number, at - late, at, new)


def test_a_quiet_second_is_the_gap_and_the_late_record_is_counted() -> None:
    arrivals = [arrival(0, 10.0), arrival(1, 10.1), arrival(2, 11.1, late=1.0), arrival(3, 11.2)]
    figures = disturbance(arrivals, 4, 10.0, 11.3)
    assert figures["gap_seconds"] == 1.0
    assert figures["most_waited_seconds"] == 1.0
    assert (figures["lost"], figures["twice"]) == (0, 0)


def test_silence_until_the_end_of_the_window_counts_as_a_gap() -> None:
    assert longest_gap([1.0, 1.1], 0.9, 3.1) == 2.0


def test_missing_records_and_duplicates_are_counted() -> None:
    arrivals = [
        arrival(0, 1.0),
        arrival(1, 1.1),
        arrival(1, 1.2, new=False),
        arrival(3, 1.3),
        arrival(3, 1.4),
    ]
    figures = disturbance(arrivals, 4, 1.0, 1.5)
    assert (figures["lost"], figures["twice"], figures["twice_after_the_reader"]) == (1, 2, 1)


def test_output_is_level_when_no_due_record_is_missing() -> None:
    arrivals = [arrival(number, 100 + number / 10 + 0.002) for number in range(20)]
    assert has_no_lag(arrivals, 10, 101.95)
    assert not has_no_lag(arrivals, 10, 102.15)
    assert not has_no_lag([arrived for arrived in arrivals if arrived.number != 7], 10, 101.95)
    assert not has_no_lag([], 10, 101.95)


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 100)), min_size=1))
def test_the_first_arrival_of_each_record_counts(pairs: list[tuple[int, float]]) -> None:
    arrivals = [arrival(number, at) for number, at in sorted(pairs, key=lambda pair: pair[1])]
    first = first_of_each(arrivals)
    assert {arrived.number for arrived in first} == {number for number, _ in pairs}
    assert all(arrived.at == min(at for number, at in pairs if number == arrived.number) for arrived in first)


@given(st.lists(st.floats(0, 10), min_size=1))
def test_percentiles_grow_and_are_measured_times(waits: list[float]) -> None:
    percentiles = list(
        milliseconds(arrival(number, 100 + wait, late=wait) for number, wait in enumerate(waits)).values()
    )
    assert percentiles == sorted(percentiles)
    assert percentiles[-1] == pytest.approx(max(waits) * 1000, abs=0.02)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.sampled_from(list(PERCENTS.values())))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(
    values: list[int], percent: Fraction
) -> None:
    bound = percentile(sorted(values), percent)
    assert sum(value <= bound for value in values) * 100 >= percent * len(values)
    assert sum(value < bound for value in values) * 100 < percent * len(values)


@given(st.integers(1, 10_000), st.integers(1, 1_000_000))
def test_the_highest_rate_is_found_within_a_quarter(first: int, limit: int) -> None:
    rate_found = highest_sustained(lambda rate: rate <= limit, first)
    assert rate_found <= limit
    assert rate_found == 0 if limit < first else limit < rate_found * 1.25 + 1
