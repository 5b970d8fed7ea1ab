"""The fixed time of micro-batches, from their records and times."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.engine.batch_cost import BATCHES, COLD_BATCHES, BatchCost


def cost_of(batches):
    cost = BatchCost()
    for records, seconds in [(100.0, 9.0)] * COLD_BATCHES + batches:
        cost.add(records, seconds)
    return cost


def test_without_batches_and_without_records_nothing_is_known():
    assert BatchCost().fixed == 0.0
    assert cost_of([(0.0, 0.4)] * 3).fixed == 0.0


@given(st.floats(0.0, 2.0), st.floats(1e-6, 1.0), st.floats(1.0, 1e5))
def test_batches_of_different_size_show_their_fixed_time(fixed, of_a_record, records):
    sizes = [records, 2 * records, 3 * records] * 10
    found = cost_of([(size, fixed + of_a_record * size) for size in sizes]).fixed
    rounding = 1e-9 * of_a_record * records
    assert found <= fixed + rounding
    assert found == pytest.approx(fixed, rel=0.03, abs=rounding)


@given(st.floats(0.001, 10.0), st.floats(1.0, 1e5))
def test_batches_that_are_all_alike_do_not_show_it(seconds, records):
    assert cost_of([(records, seconds)] * 20).fixed == pytest.approx(0.0, abs=1e-6 * seconds)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.0, 100.0)), min_size=1, max_size=50))
def test_the_fixed_time_is_between_zero_and_the_shortest_batch(batches):
    assert 0.0 <= cost_of(batches).fixed <= min(seconds for _, seconds in batches)


def test_twenty_records_a_second_on_a_busy_machine_show_most_of_it():
    dice = Random(1)  # noqa: S311
    batches = []
    for _ in range(200):
        records = max(1.0, dice.gauss(40, 40**0.5))
        batches.append((records, max(0.3, dice.gauss(0.8 + 0.002 * records, 0.1))))
    assert 0.5 < cost_of(batches).fixed < 0.9


def test_small_batches_that_were_slow_after_a_start_tell_nothing():
    """Six cold batches of a calm rate, and then those of a spike on four and on three workers."""
    cost = BatchCost()
    for records, seconds in [(45.0, 8.0)] * 6 + [(500.0, 26.0)] * 4 + [(125.0, 7.8), (167.0, 10.8)] * 10:
        cost.add(records, seconds)
    assert cost.fixed == 0.0


def test_batches_of_long_ago_do_not_count():
    cost = cost_of([(10.0, 0.5), (100.0, 0.6)] * 50)
    for records in range(BATCHES):
        cost.add(100.0 + records % 50, (100.0 + records % 50) / 100)
    assert cost.fixed < 0.05
