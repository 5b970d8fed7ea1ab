"""The simulated pipeline behaves as workers, partitions, faults and changes do."""

from dataclasses import replace

import numpy as np
import pytest

from tests.simulation.scaling.pipeline import (
    CHANGE_SECONDS,
    CHANGE_SPREAD,
    WATERMARKS,
    Pace,
    Pipeline,
    TierRun,
)
from tests.simulation.scaling.traces import (
    COUNTS,
    ENRICH,
    ENTRY,
    GAIN,
    HOUR,
    TIERS,
    Fault,
    SimulatedTier,
    Trace,
    through,
)

TIER = SimulatedTier(ENRICH, (), rate=10, selectivity=1, partitions=12)
HEALTHY = Pace(speed=10, first=1)


def steady(load: float, seconds: float = HOUR, **fields) -> Trace:
    return Trace("steady", seconds, through(((0, load), (seconds, load))), **fields)


def steps(run: TierRun, arrived: float, pace: Pace, count: int, seconds: float = 5.0) -> None:
    for index in range(1, count + 1):
        run.step(index * seconds, seconds, arrived, pace)


def advance(pipeline: Pipeline, seconds: float) -> None:
    end = pipeline.at + seconds
    while pipeline.at < end:
        pipeline.step()


def test_what_arrives_is_processed_or_waits():
    random = np.random.default_rng(7)
    run = TierRun(TIER, 5)
    arrived = done = 0.0
    for index in range(200):
        arriving = random.uniform(0, 400)
        run.workers = int(random.integers(1, 15))
        run.step(index * 5.0, 5.0, arriving, Pace(10, random.uniform(0.1, 1)))
        arrived, done = arrived + arriving, done + run.done
        assert run.done + run.lag == pytest.approx(run.done + arrived - done, abs=1)


def test_lag_seconds_are_the_wait_of_the_oldest_record():
    run = TierRun(TIER, 2)
    steps(run, 5 * 40, HEALTHY, 40)  # 40 records/s for 200 s, of which 20 are processed
    assert run.lag == pytest.approx(200 * 20)
    assert run.lag_seconds == pytest.approx(100)


def test_more_workers_than_partitions_get_no_work():
    run = TierRun(TIER, 50)
    steps(run, 5 * 400, HEALTHY, 10)
    assert run.done == pytest.approx(5 * 12 * 10)


def test_partitions_that_divide_unevenly_limit_the_tier():
    run = TierRun(TIER, 7)  # five workers have two partitions, two have one
    assert run.sustainable(HEALTHY) == pytest.approx(60)
    steps(run, 5 * 65, HEALTHY, 10)
    assert run.lag > 0


def test_partitions_of_a_broken_worker_lag_while_others_are_idle():
    run = TierRun(TIER, 6)
    steps(run, 5 * 30, Pace(speed=10, first=0.2), 100)
    assert run.backlog is not None
    assert np.flatnonzero(run.backlog > 1).tolist() == [0, 6]
    assert run.sums.busy / run.sums.seconds == pytest.approx((5 * 0.5 + 1) / 6, rel=0.01)
    assert run.sums.busiest / run.sums.seconds == pytest.approx(1)


def test_more_workers_on_busy_processors_do_not_process_more():
    fault = Fault(ENRICH, 0, HOUR, processors=6)
    done = {}
    for size in (6, 30):
        pipeline = Pipeline(steady(6000, fault=fault))
        pipeline.tiers[ENRICH].workers = size
        advance(pipeline, 60)
        signals = pipeline.measure().observation.signals[ENRICH]
        assert signals.starved == (size > 6)
        done[size] = signals.rate_done
    assert done[30] == pytest.approx(done[6], rel=0.01) == pytest.approx(3000, rel=0.01)


def test_a_growing_tier_holds_both_incarnations_until_the_change_ends():
    pipeline = Pipeline(steady(6000))
    run = pipeline.tiers[ENRICH]
    before = run.workers
    assert pipeline.scale({ENRICH: before + 4}) == [(ENRICH, before, before + 4)]
    assert pipeline.scale({ENRICH: before + 8}) == []
    advance(pipeline, CHANGE_SECONDS - CHANGE_SPREAD)
    assert (run.workers, run.slots) == (before, 2 * before + 4)
    assert ENRICH in pipeline.measure().observation.changing
    advance(pipeline, 2 * CHANGE_SPREAD + pipeline.trace.step)
    assert (run.workers, run.slots) == (before + 4, before + 4)


def test_a_shrinking_tier_holds_its_old_slots_until_the_change_ends():
    pipeline = Pipeline(steady(6000))
    run = pipeline.tiers[ENRICH]
    before = run.workers
    pipeline.scale({ENRICH: before - 2})
    assert run.slots == before
    advance(pipeline, CHANGE_SECONDS + 2 * CHANGE_SPREAD)
    assert run.slots == before - 2


def test_a_tier_without_room_for_the_next_incarnation_does_not_grow():
    pipeline = Pipeline(steady(6000))
    pipeline.step()
    room = pipeline.measure().observation.bounds[ENRICH].room
    assert pipeline.scale({ENRICH: room + 1}) == []
    assert pipeline.scale({ENRICH: room}) != []


def test_the_entry_takes_what_the_slowest_tier_can_while_it_lags():
    pipeline = Pipeline(steady(6000))
    pipeline.tiers[COUNTS].workers = 2
    advance(pipeline, 300)
    counts, entry = pipeline.tiers[COUNTS], pipeline.tiers[ENTRY]
    assert counts.lagging
    assert entry.done / pipeline.trace.step == pytest.approx(0.9 * 2 * 800 / GAIN[COUNTS])
    assert counts.lag < 1.2 * WATERMARKS.high.records
    assert entry.lag > counts.lag
    assert pipeline.measure().details[COUNTS].pressure > 0


def test_signals_tell_the_true_rate_of_a_worker():
    pipeline = Pipeline(steady(6000))
    advance(pipeline, 60)
    observation = pipeline.measure().observation
    for tier in TIERS:
        signals = observation.signals[tier.name]
        per_worker = signals.rate_done / (signals.workers * signals.busy)
        assert per_worker == pytest.approx(tier.rate, rel=0.1)


def test_the_same_trace_and_seed_give_the_same_load():
    trace = steady(6000, noise=0.03)
    assert Pipeline(trace).load == Pipeline(trace).load
    assert Pipeline(replace(trace, noise=0)).load != Pipeline(trace).load
