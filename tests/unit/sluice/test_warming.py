"""A warm-up ends when it gets no quicker: when batches take as long as before, and what waited is out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.engine.warm_up import (
    ENOUGH_RECORDS,
    LEVEL,
    LOOK_BACK_SECONDS,
    MOST_SECONDS,
    Outflow,
    level,
)

STEP = 0.2


def over(flow, out, *, works_from=0.0):
    """Return after how long it is over, where so much is out after that time."""
    for step in range(int(MOST_SECONDS / STEP) + 2):
        if flow.settled(step * STEP, int(out(step * STEP)), at_work=step * STEP >= works_from):
            return step * STEP
    pytest.fail("it never ends")


def test_batches_that_get_quicker_have_not_settled():
    assert not level([])
    assert not level([8.0, 1.0, 0.5])
    assert not level([8.0, 1.0, 0.5, 0.4])
    assert not level([8.0, 1.0, 0.5, 0.4, 0.35, 0.3])
    assert level([8.0, 1.0, 0.5, 0.4, 0.35, 0.3, 0.3, 0.25])


@given(st.lists(st.floats(0.01, 100.0), min_size=4, max_size=30))
def test_warming_has_settled_when_the_last_two_are_no_quicker_than_before(took):
    assert level(took) == (took[-1] + took[-2] >= LEVEL * (took[-3] + took[-4]))


@given(first=st.floats(0.1, 100.0), factor=st.floats(0.1, 0.99), floor=st.floats(0.01, 0.1))
def test_times_that_fall_to_a_floor_settle(first, factor, floor):
    took = [max(floor, first * factor**number) for number in range(1_000)]
    ends = next(count for count in range(4, len(took)) if level(took[:count]))
    assert took[ends - 1] <= first * factor**2 or took[ends - 1] == floor


def test_it_is_over_when_all_that_waited_is_out():
    assert over(Outflow(2_000, 0.0), lambda at: 1_000 * max(0, at - 5)) == pytest.approx(7.0)


def test_warming_ends_at_once_when_no_records_wait():
    assert over(Outflow(0, 0.0), lambda _at: 0) == pytest.approx(LOOK_BACK_SECONDS)
    assert over(Outflow(0, 0.0), lambda _at: 0, works_from=9.0) == pytest.approx(9.0 + LOOK_BACK_SECONDS)


def test_before_anything_has_come_all_the_way_it_is_not_over():
    assert over(Outflow(2_000, 0.0), lambda at: 10 if at >= 20 else 0) > 20 + LOOK_BACK_SECONDS - 2 * STEP
    assert over(Outflow(2_000, 0.0), lambda _at: 0) > MOST_SECONDS


def test_a_transform_that_drops_most_of_it_is_not_waited_for():
    assert over(Outflow(2_000, 0.0), lambda at: 0 if at < 4 else 20) < 4 + LOOK_BACK_SECONDS + 2 * STEP


@given(
    wanted=st.integers(0, 100_000),
    rate=st.floats(0.5, 5_000.0),
    starts=st.floats(0.0, 20.0),
    surge=st.integers(0, 5_000),
)
def test_it_ends_soon_after_what_comes_is_steady(wanted, rate, starts, surge):
    ends = over(Outflow(wanted, 0.0), lambda at: 0 if at < starts else surge + rate * (at - starts))
    assert ends <= starts + max(2 * LOOK_BACK_SECONDS, 1 / rate + LOOK_BACK_SECONDS) + 3 * STEP


def test_warming_ends_with_as_many_records_as_it_would_read_again():
    assert over(Outflow(0, 0.0), lambda at: 10_000 * max(0, at - 1)) <= 1 + ENOUGH_RECORDS / 10_000 + STEP
