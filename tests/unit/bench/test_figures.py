"""What the benches say of a window of records, on windows whose answer is known."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import (
    PERCENTS,
    Arrival,
    disturbance,
    first_of_each,
    highest_sustained,
    level,
    milliseconds,
    widest,
    within,
)


def came(number: int, at: float, *, late: float = 0.002, new: bool = True) -> Arrival:
    return Arrival(number, at - late, at, new)


def test_a_quiet_second_is_the_gap_and_the_late_record_is_told() -> None:
    arrivals = [came(0, 10.0), came(1, 10.1), came(2, 11.1, late=1.0), came(3, 11.2)]
    told = disturbance(arrivals, 4, 10.0, 11.3)
    assert told["gap_seconds"] == 1.0
    assert told["most_waited_seconds"] == 1.0
    assert (told["lost"], told["twice"]) == (0, 0)


def test_silence_to_the_end_counts_too() -> None:
    assert widest([1.0, 1.1], 0.9, 3.1) == 2.0


def test_missing_and_repeated_records_are_counted_also_behind_the_reader() -> None:
    arrivals = [came(0, 1.0), came(1, 1.1), came(1, 1.2, new=False), came(3, 1.3), came(3, 1.4)]
    told = disturbance(arrivals, 4, 1.0, 1.5)
    assert (told["lost"], told["twice"], told["twice_after_the_reader"]) == (1, 2, 1)


def test_it_is_level_when_nothing_that_was_due_is_missing() -> None:
    arrivals = [came(number, 100 + number / 10 + 0.002) for number in range(20)]
    assert level(arrivals, 10, 101.95)
    assert not level(arrivals, 10, 102.15)
    assert not level([each for each in arrivals if each.number != 7], 10, 101.95)
    assert not level([], 10, 101.95)


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 100)), min_size=1))
def test_the_first_arrival_of_each_is_what_counts(pairs: list[tuple[int, float]]) -> None:
    arrivals = [came(number, at) for number, at in sorted(pairs, key=lambda pair: pair[1])]
    first = first_of_each(arrivals)
    assert {each.number for each in first} == {number for number, _ in pairs}
    assert all(each.at == min(at for number, at in pairs if number == each.number) for each in first)


@given(st.lists(st.floats(0, 10), min_size=1))
def test_percentiles_grow_and_are_times_that_occurred(waits: list[float]) -> None:
    found = list(
        milliseconds(came(number, 100 + wait, late=wait) for number, wait in enumerate(waits)).values()
    )
    assert found == sorted(found)
    assert found[-1] == pytest.approx(max(waits) * 1000, abs=0.02)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.sampled_from(list(PERCENTS.values())))
def test_so_many_per_cent_do_not_exceed_it_and_less_would_be_too_little(
    values: list[int], percent: Fraction
) -> None:
    found = within(sorted(values), percent)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


@given(st.integers(1, 10_000), st.integers(1, 1_000_000))
def test_the_highest_rate_is_found_to_a_quarter(first: int, limit: int) -> None:
    found = highest_sustained(lambda rate: rate <= limit, first)
    assert found <= limit
    assert found == 0 if limit < first else limit < found * 1.25 + 1
