"""The lag of a tier: when it causes backpressure, and which partition and key it names."""

import pytest

from sluice.api.declarations import Stream
from sluice.driver.positions.lag import RENEW_SECONDS, LagHistory, Look, hot, uneven
from sluice_ops.model.backpressure import Lag, Watermarks

MARKS = Watermarks(high=Lag(records=1000, seconds=60), low=Lag(records=100, seconds=10))
HITS = Stream("hits", "id string", watermarks=MARKS)


def unknown():
    return None


def no_samples(_stream):
    return {}


def look(now, ends, positions, wait=0.0):
    waits = {name: wait for name in ends if positions[name] < ends[name]}
    return Look(float(now), float(now), ends, positions, waits)


@pytest.fixture
def history():
    return LagHistory((HITS,))


def test_a_tier_that_keeps_up_causes_no_backpressure(history):
    for second in range(0, 600, 2):
        history.update(
            look(second, {"hits/0": second * 10}, {"hits/0": second * 10 - 5}), unknown, no_samples
        )
        assert history.pressure is None
    assert history.lags == {"hits": Lag(records=5, seconds=0)}


def test_backpressure_lasts_from_the_high_to_the_low_watermark(history):
    for second in range(0, 202, 2):
        history.update(look(second, {"hits/0": second * 20}, {"hits/0": second * 10}), unknown, no_samples)
        assert (history.pressure is not None) is (second * 10 > 1000)
    assert history.pressure.since == 102
    assert history.pressure.sentence == "is 1620 records, 0 s behind in hits; 20/s came in and 10/s were done"
    for lag in (900, 101):
        history.update(look(300, {"hits/0": 5000}, {"hits/0": 5000 - lag}), unknown, no_samples)
        assert history.pressure is not None
    history.update(look(302, {"hits/0": 5000}, {"hits/0": 4900}), unknown, no_samples)
    assert history.pressure is None


def test_a_throttled_tier_causes_no_backpressure(history):
    for second in range(0, 300, 2):
        history.update(
            look(second, {"hits/0": 5000 + 10 * second}, {"hits/0": 500}), unknown, no_samples, metered=True
        )
        assert history.pressure is None
        assert history.lags["hits"].records > 1000
    history.update(look(300, {"hits/0": 8000}, {"hits/0": 8000}), unknown, no_samples)
    assert history.pressure is None


def test_seconds_alone_cause_backpressure(history):
    history.update(look(0, {"hits/0": 10}, {"hits/0": 5}, wait=61), unknown, no_samples)
    assert history.pressure.lag == Lag(records=5, seconds=61)


def test_figures_of_backpressure_are_renewed_only_at_intervals(history):
    pressures = []
    for second in range(0, 300, 2):
        history.update(look(second, {"hits/0": 5000 + second}, {"hits/0": 0}), unknown, no_samples)
        pressures.append(history.pressure)
    assert len(set(pressures)) == 300 / RENEW_SECONDS


def test_records_without_a_trace_in_the_output_are_no_lag(history):
    """The tier has read all records, but its output shows nothing of filtered records, or of a
    quiet partition.
    """
    for second in range(0, 3600, 2):
        history.update(
            look(second, {"hits/0": 20_000 + second}, {"hits/0": 500}, wait=second),
            lambda now=second: 20_000 + now,
            no_samples,
        )
        assert history.pressure is None
    history.update(look(3600, {"hits/0": 30_000}, {"hits/0": 500}, wait=3600), lambda: 23_598, no_samples)
    assert history.pressure.lag == Lag(records=6402, seconds=2)


def test_the_lagging_partition_is_named(history):
    ends = dict.fromkeys(("hits/0", "hits/1", "hits/2", "hits/3"), 10_000)
    history.update(look(0, ends, ends | {"hits/2": 100}), unknown, lambda _: {2: [b"a"] * 9 + [b"b"]})
    assert (
        history.pressure.hot == "100% of it is in partition 2 of 4, key 'a' has 90% of it, as 10 records tell"
    )


@pytest.mark.parametrize("count", [2, 4, 6, 8, 64])
def test_a_key_that_fills_its_partition_is_named_at_any_count(count):
    waits = dict.fromkeys(range(count), 100) | {1: 100_000}
    samples = {
        partition: [b"%d" % number for number in range(partition, partition + 100)]
        for partition in range(count)
    } | {1: [b"who"] * 500}
    assert uneven(waits).endswith(f"of it is in partition 1 of {count}")
    assert hot(waits, samples).startswith("key 'who' has ")


def test_of_two_partitions_the_one_with_most_of_the_lag_is_named():
    assert uneven({0: 95_000, 1: 5_000}) == "95% of it is in partition 0 of 2"
    assert not uneven({0: 70, 1: 30})


def test_no_partition_or_key_is_named_while_all_are_alike():
    assert not uneven({0: 10, 1: 11, 2: 9})
    assert not uneven({0: 1000})
    assert not uneven({})
    assert not hot({0: 100}, {0: [bytes([number]) for number in range(100)]})
    assert not hot({0: 100}, {0: [None] * 100})
    assert not hot({0: 100}, {})
    assert not hot({0: 0, 1: 900}, {0: [b"done"] * 100, 1: [bytes([number]) for number in range(100)]}), (
        "the samples are from a partition without lag"
    )
    assert hot({0: 900}, {0: [None] * 70 + [b"who"] * 30}) == "key 'who' has 30% of it, as 100 records tell"


def test_a_clock_jump_causes_no_backpressure(history):
    """Records seem to have waited for an hour.

    The ends of the streams at that time show that the wait is seconds.
    """
    for second in range(0, 100, 2):
        ends = {"hits/0": 1000 + 10 * second}
        jumped = Look(
            float(second), second + 3600.0, ends, {"hits/0": ends["hits/0"] - 20}, {"hits/0": 3602.0}
        )
        history.update(jumped, lambda now=second: 1000 + 10 * now - 20, no_samples)
        assert (history.pressure is None) or second < 4
