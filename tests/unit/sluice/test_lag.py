"""The lag of a tier: when it causes backpressure, and which partition and key it names."""

from dataclasses import replace

import pytest

from sluice.api.declarations import Stream
from sluice.driver.positions.lag import QUIET_SECONDS, RENEW_SECONDS, LagHistory, Look, hot, uneven
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
    assert history.pressure.sentence == "is 1980 records, 0 s behind in hits; 20/s came in and 10/s were done"
    for second in range(202, 302, 2):
        history.update(look(second, {"hits/0": 5000}, {"hits/0": 4899}), unknown, no_samples)
        assert history.pressure is not None
    for second in range(302, 350, 2):
        history.update(look(second, {"hits/0": 5000}, {"hits/0": 4900}), unknown, no_samples)
        assert (history.pressure is None) is (second > 300 + QUIET_SECONDS)


def test_the_lagging_input_that_kafka_deletes_first_has_the_expiry():
    slow, level = Stream("slow", watermarks=MARKS), Stream("level", watermarks=MARKS)
    history = LagHistory((HITS, slow, level))
    ends, positions = {"hits/0": 5000, "slow/0": 5000, "level/0": 5}, {"hits/0": 0, "slow/0": 0, "level/0": 5}
    seen = Look(10.0, 10.0, ends, positions, {"hits/0": 50.0, "slow/0": 50.0})
    history.update(seen, unknown, no_samples)
    assert history.pressure.expiry is None, "Kafka keeps all records, or it is not known yet"
    history.kept = {"hits": 1000.0, "slow": 80.0, "level": 1.0}
    history.update(replace(seen, now=20.0, at=20.0), unknown, no_samples)
    expiry = history.pressure.expiry
    assert (expiry.stream, expiry.left, expiry.near) == ("slow", 30.0, True)
    assert expiry.sentence == "Kafka deletes the oldest of these records of slow in 30 s"
    assert "may already delete records of slow" in expiry.after(31.0).sentence


def test_backpressure_for_a_moment_ends_at_once(history):
    for second, lag in ((0, 50), (2, 1001), (4, 50)):
        history.update(look(second, {"hits/0": 5000}, {"hits/0": 5000 - lag}), unknown, no_samples)
        assert (history.pressure is not None) is (lag > 1000)


def test_times_without_enough_records_do_not_lower_the_capacity(history):
    """The tier processes 100 records/s; then only 20/s come, and it has no more to process."""
    end, done = 3000, 0
    for second in range(0, 100, 2):
        history.update(look(second, {"hits/0": end}, {"hits/0": done}), unknown, no_samples)
        end, done = end + 40, min(end + 40, done + 200)
        if 30 < second < 60:
            assert history.pressure.rate_wanted >= 100
    assert history.pressure is None


def test_a_throttled_tier_causes_no_backpressure(history):
    for second in range(0, 300, 2):
        history.update(
            look(second, {"hits/0": 5000 + 10 * second}, {"hits/0": 500}), unknown, no_samples, metered=True
        )
        assert history.pressure is None
        assert history.lags["hits"].records > 1000
        assert history.rate_taken == (None if second < 10 else 0)
    history.update(look(300, {"hits/0": 8000}, {"hits/0": 8000}), unknown, no_samples)
    assert history.pressure is None


def test_the_rate_of_a_throttled_tier_is_taken_over_half_a_minute(history):
    rates = []
    for second in range(0, 200, 2):
        taken = 20 * min(second, 100) + 5 * max(0, second - 100)
        place = look(second, {"hits/0": 10_000}, {"hits/0": taken})
        history.update(place, unknown, no_samples, metered=second >= 100)
        rates.append(history.rate_taken)
    assert rates[:50] == [None] * 50
    assert (rates[50], rates[66], rates[-1]) == (20, 5, 5)
    assert len(set(rates[50:67])) <= 2 + 32 / RENEW_SECONDS, "figures are renewed at intervals only"
    history.update(look(202, {"hits/0": 10_000}, {"hits/0": 9_990}), unknown, no_samples)
    assert history.rate_taken is None


def test_records_that_the_output_does_not_show_count_as_processed(history):
    """The tier lags by 1,500 records, and its output shows nothing of one of two partitions."""
    for second in range(0, 60, 2):
        ends = {"hits/0": 1000 + 10 * second, "hits/1": 1000 + 10 * second}
        read = sum(ends.values()) - 1500
        history.update(look(second, ends, {"hits/0": 10 * second, "hits/1": 0}), lambda n=read: n, no_samples)
    assert history.pressure.rate_done == history.pressure.rate_in == 20


def test_the_stream_whose_reader_wants_the_smallest_part_is_reported():
    history = LagHistory((HITS, Stream("views", "id string", watermarks=MARKS)))
    for second in range(0, 60, 2):
        ends = {"hits/0": 1100 + 10 * second, "views/0": 1100 + 10 * second}
        done = {
            "hits/0": 10 * second + (600 if second else 0),
            "views/0": 10 * second + (200 if second else 0),
        }
        history.update(look(second, ends, done), unknown, no_samples)
    assert history.pressure.stream == "views"
    assert history.pressure.rate_wanted < history.pressure.rate_done


def test_seconds_alone_cause_backpressure(history):
    history.update(look(0, {"hits/0": 10}, {"hits/0": 5}, wait=61), unknown, no_samples)
    assert history.pressure.lag == Lag(records=5, seconds=61)


def test_figures_of_backpressure_are_renewed_only_at_intervals(history):
    pressures = []
    for second in range(0, 300, 2):
        history.update(look(second, {"hits/0": 5000 + second}, {"hits/0": 0}), unknown, no_samples)
        pressures.append(history.pressure)
    assert len(set(pressures)) == 300 / 4


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
