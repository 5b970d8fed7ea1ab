"""The pace of a replay: it measures the usual latency of live records, slows down when they take
twice as long, and always makes progress.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.replay.pace import FIRST, TOO_LONG, USUAL_SECONDS, Pace, p99

RATE = 1000.0


class FakePipeline:
    """A pipeline whose latency grows as its load comes near its capacity."""

    def __init__(self, capacity: float, live: float = 100.0) -> None:
        self.capacity, self.live, self.now = capacity, live, 0.0
        self.pace = Pace(RATE)
        self.taken = 0.0

    def wait(self) -> float:
        load = min(0.999, (self.live + self.pace.rate) / self.capacity)
        return 0.05 / (1 - load)

    def run(self, seconds: float, extra: float = 0.0) -> list[float]:
        """Look every second, and return the latencies of live records. Unit: s."""
        waits = []
        for _ in range(int(seconds)):
            self.now += 1
            self.taken += self.pace.rate
            waits.append(self.wait() + extra)
            self.pace.add(self.now, {"hits": [waits[-1]] * 20})
        return waits


def test_a_replay_measures_first_and_then_speeds_up_in_steps():
    world = FakePipeline(capacity=100_000)
    world.run(USUAL_SECONDS)
    assert world.taken == 0
    world.run(1)
    assert world.pace.rate == FIRST * RATE
    world.run(60)
    assert world.pace.rate == RATE
    assert world.pace.sentence == ""


@given(capacity=st.floats(300, 5000))
def test_live_records_take_less_than_twice_as_long_and_it_progresses(capacity):
    world = FakePipeline(capacity)
    usual = world.run(1)[0]
    assert max(world.run(600)) <= 2 * usual
    assert world.taken > 0


def test_without_spare_capacity_a_replay_pauses_most_of_the_time():
    world = FakePipeline(capacity=105)
    usual = world.run(1)[0]
    late = [wait for wait in world.run(1200) if wait > 2 * usual]
    assert len(late) < 0.2 * 1200
    assert "pauses" in world.pace.sentence or world.pace.rate


def test_latency_that_stays_high_during_a_pause_becomes_the_usual():
    world = FakePipeline(capacity=100_000)
    world.run(60)
    world.run(40, extra=1.0)
    assert "is usual" in world.pace.sentence
    assert world.pace.rate < RATE
    world.run(150, extra=1.0)
    assert world.pace.rate == RATE


def test_without_live_records_a_replay_runs_at_its_full_rate():
    pace = Pace(RATE)
    for second in range(80):
        pace.add(float(second), {})
    assert pace.rate == RATE


def test_a_replay_pauses_while_latency_cannot_be_measured():
    world = FakePipeline(capacity=100_000)
    world.run(80)
    world.pace.add(world.now + 1, None)
    assert world.pace.rate == 0
    assert "cannot be measured" in world.pace.sentence


def test_one_slow_stream_slows_the_replay():
    pace = Pace(RATE)
    for second in range(12):
        pace.add(float(second), {"hits": [0.01] * 50, "counts": [2.0]})
    before = pace.rate
    assert before
    for second in range(12, 17):
        pace.add(float(second), {"hits": [0.01] * 50, "counts": [2.0 * TOO_LONG + 0.1]})
    assert pace.rate == before / 2, "the rate must be halved at once"
    assert "3.70 s to counts (p99), and 2.00 s is usual" in pace.sentence


@pytest.mark.parametrize(
    ("waits", "expected"),
    [([1.0], 1.0), ([float(n) for n in range(1, 101)], 99.0), ([0.0] * 99 + [9.0], 0.0)],
)
def test_p99(waits, expected):
    assert p99(waits) == expected
