"""How far a tier is behind: what its driver makes of what it has measured, and whom it names."""

import pytest

from sluice.api.declarations import Stream
from sluice.driver.positions.lag import RENEW_SECONDS, LagHistory, Look, hot, uneven
from sluice_ops.model.backpressure import Lag, Watermarks

MARKS = Watermarks(high=Lag(records=1000, seconds=60), low=Lag(records=100, seconds=10))
HITS = Stream("hits", "id string", watermarks=MARKS)


def unknown():
    return None


def nobody(_stream):
    return {}


def look(now, ends, positions, wait=0.0):
    waits = {name: wait for name in ends if positions[name] < ends[name]}
    return Look(float(now), float(now), ends, positions, waits)


@pytest.fixture
def behind():
    return LagHistory((HITS,))


def test_a_tier_that_keeps_up_presses_nobody(behind):
    for second in range(0, 600, 2):
        behind.look(look(second, {"hits/0": second * 10}, {"hits/0": second * 10 - 5}), unknown, nobody)
        assert behind.pressure is None
    assert behind.lags == {"hits": Lag(records=5, seconds=0)}


def test_it_presses_from_the_high_watermark_to_the_low_one_with_its_rates(behind):
    for second in range(0, 202, 2):
        behind.look(look(second, {"hits/0": second * 20}, {"hits/0": second * 10}), unknown, nobody)
        assert (behind.pressure is not None) is (second * 10 > 1000)
    assert behind.pressure.since == 102
    assert behind.pressure.sentence == "is 1620 records, 0 s behind in hits; 20/s came in and 10/s were done"
    for left in (900, 101):
        behind.look(look(300, {"hits/0": 5000}, {"hits/0": 5000 - left}), unknown, nobody)
        assert behind.pressure is not None
    behind.look(look(302, {"hits/0": 5000}, {"hits/0": 4900}), unknown, nobody)
    assert behind.pressure is None


def test_who_was_held_back_is_behind_because_of_that(behind):
    for second in range(0, 300, 2):
        behind.look(
            look(second, {"hits/0": 5000 + 10 * second}, {"hits/0": 500}), unknown, nobody, metered=True
        )
        assert behind.pressure is None
        assert behind.lags["hits"].records > 1000
    behind.look(look(300, {"hits/0": 8000}, {"hits/0": 8000}), unknown, nobody)
    assert behind.pressure is None


def test_seconds_alone_press_too(behind):
    behind.look(look(0, {"hits/0": 10}, {"hits/0": 5}, wait=61), unknown, nobody)
    assert behind.pressure.lag == Lag(records=5, seconds=61)


def test_its_figures_are_said_anew_only_now_and_then(behind):
    said = []
    for second in range(0, 300, 2):
        behind.look(look(second, {"hits/0": 5000 + second}, {"hits/0": 0}), unknown, nobody)
        said.append(behind.pressure)
    assert len(set(said)) == 300 / RENEW_SECONDS


def test_what_the_output_does_not_tell_is_not_held_against_it(behind):
    """A record that was left out, or that came by a quiet partition: it has read all, and its output does not show it."""
    for second in range(0, 3600, 2):
        behind.look(
            look(second, {"hits/0": 20_000 + second}, {"hits/0": 500}, wait=second),
            lambda now=second: 20_000 + now,
            nobody,
        )
        assert behind.pressure is None
    behind.look(look(3600, {"hits/0": 30_000}, {"hits/0": 500}, wait=3600), lambda: 23_598, nobody)
    assert behind.pressure.lag == Lag(records=6402, seconds=2)


def test_the_partition_in_which_it_waits_is_named(behind):
    ends = dict.fromkeys(("hits/0", "hits/1", "hits/2", "hits/3"), 10_000)
    behind.look(look(0, ends, ends | {"hits/2": 100}), unknown, lambda _: {2: [b"a"] * 9 + [b"b"]})
    assert (
        behind.pressure.hot == "100% of it is in partition 2 of 4, key 'a' has 90% of it, as 10 records tell"
    )


@pytest.mark.parametrize("count", [2, 4, 6, 8, 64])
def test_a_key_that_fills_its_partition_is_named_however_many_there_are(count):
    waits = dict.fromkeys(range(count), 100) | {1: 100_000}
    samples = {
        partition: [b"%d" % number for number in range(partition, partition + 100)]
        for partition in range(count)
    } | {1: [b"who"] * 500}
    assert uneven(waits).endswith(f"of it is in partition 1 of {count}")
    assert hot(waits, samples).startswith("key 'who' has ")


def test_of_two_partitions_one_is_named_when_most_of_it_waits_there():
    assert uneven({0: 95_000, 1: 5_000}) == "95% of it is in partition 0 of 2"
    assert not uneven({0: 70, 1: 30})


def test_nothing_is_named_where_all_are_alike():
    assert not uneven({0: 10, 1: 11, 2: 9})
    assert not uneven({0: 1000})
    assert not uneven({})
    assert not hot({0: 100}, {0: [bytes([number]) for number in range(100)]})
    assert not hot({0: 100}, {0: [None] * 100})
    assert not hot({0: 100}, {})
    assert not hot({0: 0, 1: 900}, {0: [b"done"] * 100, 1: [bytes([number]) for number in range(100)]}), (
        "nothing waits where it is"
    )
    assert hot({0: 900}, {0: [None] * 70 + [b"who"] * 30}) == "key 'who' has 30% of it, as 100 records tell"


def test_a_clock_that_jumps_makes_nobody_late(behind):
    """Records seem to have waited for an hour; what had come by then says that it is seconds."""
    for second in range(0, 100, 2):
        ends = {"hits/0": 1000 + 10 * second}
        jumped = Look(
            float(second), second + 3600.0, ends, {"hits/0": ends["hits/0"] - 20}, {"hits/0": 3602.0}
        )
        behind.look(jumped, lambda now=second: 1000 + 10 * now - 20, nobody)
        assert (behind.pressure is None) or second < 4
