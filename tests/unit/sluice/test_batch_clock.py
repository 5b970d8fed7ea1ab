"""The busy time of a tier that writes streams in micro-batches."""

import pytest

from sluice.driver.process.batch_clock import BatchClock, EndedBatch


def batch(number, seconds, records=10, began=None):
    return EndedBatch(number, began or f"at {number}", seconds, records)


def look(clock, now, last, *, runs=False):
    clock.look(now, last, runs=runs, workers=2)
    return clock.busy_seconds


def test_batches_that_wait_for_their_interval_count_only_while_they_run():
    clock = BatchClock()
    assert look(clock, 0.0, None) == 0.0
    for number in range(5):
        look(clock, 2.0 * number + 1.9, batch(number, 0.5))
    assert clock.busy_seconds == 2.5, "half a second of each two"


def test_a_long_batch_counts_while_it_runs_and_once_when_it_has_ended():
    clock = BatchClock()
    look(clock, 0.0, batch(0, 1.0))
    busy = [look(clock, now, batch(0, 1.0), runs=True) for now in (2.0, 4.0, 6.0, 30.0)]
    assert busy == [1.0, 3.0, 5.0, 29.0]
    assert look(clock, 32.0, batch(1, 31.0), runs=True) == 32.0
    assert look(clock, 34.0, batch(1, 31.0), runs=True) == 34.0


def test_a_batch_between_two_looks_counts_as_the_last_one():
    clock = BatchClock()
    look(clock, 0.0, batch(3, 1.0))
    assert look(clock, 2.0, batch(5, 0.7)) == pytest.approx(1.0 + 2 * 0.7)


def test_a_query_that_started_again_counts_its_batches_from_the_first():
    clock = BatchClock()
    look(clock, 0.0, batch(8, 1.0))
    assert look(clock, 2.0, batch(0, 0.5)) == 1.5
    assert look(clock, 4.0, batch(0, 0.5, began="again")) == 2.0


def test_busy_time_never_falls_and_a_query_that_stopped_is_idle():
    clock = BatchClock()
    look(clock, 0.0, None, runs=True)
    assert look(clock, 3.0, None, runs=True) == 3.0
    assert [look(clock, now, None) for now in (5.0, 50.0)] == [3.0, 3.0]


def test_the_fixed_part_of_batches_is_known_from_batches_of_different_size():
    clock = BatchClock()
    for number in range(30):
        records = 20 + 20 * (number % 3)
        look(clock, 2.0 * number, batch(number, 0.6 + 0.01 * records, records))
    assert 0.0 < clock.fixed_seconds < clock.busy_seconds
    before = clock.fixed_seconds
    look(clock, 99.0, batch(30, 1.0, 40))
    assert clock.fixed_seconds - before == pytest.approx(0.6, rel=0.1)
