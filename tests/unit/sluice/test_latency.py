"""The 99th percentile of latency: at least 99 of 100 samples waited no longer."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.driver.counters import slowest_in_hundred


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=500))
def test_at_most_one_sample_in_a_hundred_waited_longer(waits: list[float]) -> None:
    slowest = slowest_in_hundred(waits)
    assert slowest in waits
    assert 100 * sum(wait > slowest for wait in waits) <= len(waits)
    assert 100 * sum(wait >= slowest for wait in waits) > len(waits)


def test_without_samples_there_is_no_percentile() -> None:
    assert slowest_in_hundred([]) is None
