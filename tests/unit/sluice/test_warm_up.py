"""A warm-up ends when batches take as long as before, and all waiting records are out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.engine.warm_up import (
    ENOUGH_RECORDS,
    LEVEL,
    LOOK_BACK_SECONDS,
    MOST_SECONDS,
    Outflow,
    first_partitions,
    level,
)

STEP = 0.2


def seconds_until_settled(flow, out, *, works_from=0.0):
    """Return after how many seconds the warm-up settles, if `out` gives the number of records out
    at each time.
    """
    for step in range(int(MOST_SECONDS / STEP) + 2):
        if flow.settled(step * STEP, int(out(step * STEP)), at_work=step * STEP >= works_from):
            return step * STEP
    pytest.fail("the warm-up never settles")


def test_batches_that_get_quicker_are_not_level():
    assert not level([])
    assert not level([8.0, 1.0, 0.5])
    assert not level([8.0, 1.0, 0.5, 0.4])
    assert not level([8.0, 1.0, 0.5, 0.4, 0.35, 0.3])
    assert level([8.0, 1.0, 0.5, 0.4, 0.35, 0.3, 0.3, 0.25])


@given(st.lists(st.floats(0.01, 100.0), min_size=4, max_size=30))
def test_batches_are_level_when_the_last_two_are_no_quicker(durations):
    assert level(durations) == (durations[-1] + durations[-2] >= LEVEL * (durations[-3] + durations[-4]))


@given(first=st.floats(0.1, 100.0), factor=st.floats(0.1, 0.99), floor=st.floats(0.01, 0.1))
def test_durations_that_fall_to_a_floor_become_level(first, factor, floor):
    durations = [max(floor, first * factor**number) for number in range(1_000)]
    ends = next(count for count in range(4, len(durations)) if level(durations[:count]))
    assert durations[ends - 1] <= first * factor**2 or durations[ends - 1] == floor


def test_a_warm_up_ends_when_all_waiting_records_are_out():
    assert seconds_until_settled(Outflow(2_000, 0.0), lambda at: 1_000 * max(0, at - 5)) == pytest.approx(7.0)


def test_a_warm_up_ends_at_once_when_no_records_wait():
    assert seconds_until_settled(Outflow(0, 0.0), lambda _at: 0) == pytest.approx(LOOK_BACK_SECONDS)
    assert seconds_until_settled(Outflow(0, 0.0), lambda _at: 0, works_from=9.0) == pytest.approx(
        9.0 + LOOK_BACK_SECONDS
    )


def test_a_warm_up_does_not_end_before_the_first_output():
    assert (
        seconds_until_settled(Outflow(2_000, 0.0), lambda at: 10 if at >= 20 else 0)
        > 20 + LOOK_BACK_SECONDS - 2 * STEP
    )
    assert seconds_until_settled(Outflow(2_000, 0.0), lambda _at: 0) > MOST_SECONDS


def test_a_warm_up_does_not_wait_for_filtered_records():
    assert (
        seconds_until_settled(Outflow(2_000, 0.0), lambda at: 0 if at < 4 else 20)
        < 4 + LOOK_BACK_SECONDS + 2 * STEP
    )


@given(
    wanted=st.integers(0, 100_000),
    rate=st.floats(0.5, 5_000.0),
    starts=st.floats(0.0, 20.0),
    surge=st.integers(0, 5_000),
)
def test_a_warm_up_ends_soon_after_its_output_is_steady(wanted, rate, starts, surge):
    ends = seconds_until_settled(
        Outflow(wanted, 0.0), lambda at: 0 if at < starts else surge + rate * (at - starts)
    )
    assert ends <= starts + max(2 * LOOK_BACK_SECONDS, 1 / rate + LOOK_BACK_SECONDS) + 3 * STEP


def test_a_warm_up_ends_after_the_records_that_a_run_reads_again():
    assert (
        seconds_until_settled(Outflow(0, 0.0), lambda at: 10_000 * max(0, at - 1))
        <= 1 + ENOUGH_RECORDS / 10_000 + STEP
    )


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 30), min_size=1),
    st.integers(1, 40),
)
def test_new_workers_warm_up_on_partitions_of_each_stream(partitions, count):
    names = {f"{stream}/{number}" for stream, width in partitions.items() for number in range(width)}
    chosen = first_partitions(names, count)
    assert {name.partition("/")[0] for name in chosen} == partitions.keys()
    assert len(chosen) == min(len(names), max(count, len(partitions)))
