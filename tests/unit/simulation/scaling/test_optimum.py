"""The optimum is the cheapest schedule that holds each size long enough."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.scaling.optimum import CELL, cheapest, needs
from tests.simulation.scaling.traces import COUNTS, ENRICH, HOUR, TIERS, Fault, Trace, through

BY_NAME = {tier.name: tier for tier in TIERS}
SHORTEST = 3


def lasts(sizes) -> bool:
    """Whether each size but the first and the last lasts long enough."""
    runs = np.diff(np.flatnonzero(np.diff(sizes)))
    return bool((runs >= SHORTEST).all())


@settings(max_examples=60)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=7))
def test_no_schedule_that_holds_sizes_long_enough_is_cheaper(need):
    sizes = cheapest(np.array(need, dtype=float), SHORTEST)
    assert (sizes >= need).all()
    assert lasts(sizes)
    lowest = min(
        sum(other)
        for other in product(range(1, 4), repeat=len(need))
        if lasts(other) and all(has >= needed for has, needed in zip(other, need, strict=True))
    )
    assert sizes.sum() == lowest


def test_a_tier_needs_enough_workers_for_its_load_at_70_percent():
    trace = Trace("steady", HOUR, through(((0, 1000), (HOUR, 1000))))
    assert set(needs(trace, BY_NAME[COUNTS])) == {np.ceil(1000 * 0.9 * 0.8 / 800 / 0.7)}


def test_a_peak_shorter_than_the_lag_limit_is_averaged():
    spike = through(((0, 1000), (1800, 1000), (1801, 3000), (1830, 3000), (1831, 1000)))
    need = needs(Trace("spike", HOUR, spike), BY_NAME[ENRICH])
    assert need.max() < np.ceil(3000 * 0.9 / 500 / 0.7)
    assert need[0] == np.ceil(1000 * 0.9 / 500 / 0.7)


def test_busy_processors_limit_what_a_tier_needs():
    trace = Trace(
        "busy",
        HOUR,
        through(((0, 6000), (HOUR, 6000))),
        fault=Fault(ENRICH, HOUR / 2, HOUR, processors=6),
    )
    need = needs(trace, BY_NAME[ENRICH])
    assert need[int(HOUR / 4 / CELL)] == 16
    assert need[int(HOUR * 3 / 4 / CELL)] == 6


def test_a_size_changes_at_most_twice_an_hour():
    saw = through((minute * 60, 1000 + 5000 * (minute % 20) / 20) for minute in range(240))
    sizes = cheapest(needs(Trace("saw", 4 * HOUR, saw), BY_NAME[ENRICH]))
    assert np.count_nonzero(np.diff(sizes)) <= 2 * 4
    assert sizes.sum() == pytest.approx(sizes.max() * len(sizes), rel=0.15)
