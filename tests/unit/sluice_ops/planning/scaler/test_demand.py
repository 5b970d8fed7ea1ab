"""The load of a tier: through the graph by measured ratios, not what a throttled tier shows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.model.scaler import Readings
from sluice_ops.planning.scaler.demand import (
    Flow,
    arriving_load,
    planned_output,
    upstream_first,
    with_backlog,
    with_throttled_backlog,
    workers_for,
)
from sluice_ops.planning.scaler.signals import Signals

TIERS = ["a", "b", "c", "d", "e"]


def readings(rate_in=0.0, rate_done=0.0, rate_out=0.0, per_worker=100.0):
    return Readings(
        at=0.0,
        rate_in=rate_in,
        rate_done=rate_done,
        rate_out=rate_out,
        best_done=rate_done,
        per_worker=per_worker,
    )


def signals(workers=1, lag=0, busy=1.0, *, throttled=False):
    return Signals(0.0, 0.0, 0.0, busy, workers, lag, 0.0, starved=False, throttled=throttled)


@given(st.dictionaries(st.sampled_from(TIERS), st.lists(st.sampled_from(TIERS)).map(tuple)))
def test_each_tier_comes_once_and_after_its_upstream_tiers(inputs):
    order = upstream_first(TIERS, inputs)
    assert sorted(order) == TIERS
    acyclic = {tier: tuple(name for name in names if name < tier) for tier, names in inputs.items()}
    order = upstream_first(TIERS, acyclic)
    assert all(order.index(name) < order.index(tier) for tier, names in acyclic.items() for name in names)


def test_the_load_is_what_arrives_times_the_planned_growth_of_its_writers():
    writers = {"a": readings(rate_done=100, rate_out=50), "b": readings(rate_done=100, rate_out=150)}
    planned = {"a": Flow(100.0), "b": Flow(150.0, 30.0)}
    assert arriving_load(readings(rate_in=200), writers, planned) == Flow(250.0, 30.0)
    assert arriving_load(readings(rate_in=100), writers, planned) == Flow(125.0, 15.0), (
        "it reads half of them"
    )
    assert arriving_load(readings(rate_in=200), writers, {"a": Flow(100.0)}) == Flow(250.0), (
        "b is later in a loop"
    )
    assert arriving_load(readings(rate_in=70), {}, {}) == Flow(70.0)
    assert arriving_load(readings(rate_in=70), {"a": readings()}, {"a": Flow()}) == Flow(70.0), (
        "nothing written"
    )


def test_a_throttled_tier_writes_its_load_as_soon_as_it_has_the_workers():
    throttled = readings(rate_in=500, rate_done=100, rate_out=200)
    assert planned_output(Flow(500.0, 50.0), throttled, 10) == Flow(1000.0, 100.0)
    assert planned_output(Flow(500.0, 50.0), throttled, 3) == Flow(600.0, 0.0), "3 workers process 300/s"
    assert planned_output(Flow(500.0), readings(rate_done=0, rate_out=7), 3) == Flow(7.0), "nothing measured"


def test_a_backlog_is_what_is_left_when_new_workers_have_started():
    assert with_backlog(Flow(100.0), signals(lag=3500), 100.0, 20.0, 300.0) == Flow(100.0, 10.0)
    assert with_backlog(Flow(100.0), signals(lag=500), 100.0, 20.0, 300.0) == Flow(100.0), "the next batch"
    may_lag = replace(signals(lag=3500), holds=False)
    assert with_backlog(Flow(100.0), may_lag, 100.0, 20.0, 300.0) == Flow(100.0), "no worker for its backlog"
    assert with_backlog(Flow(400.0), signals(), 100.0, 20.0, 300.0) == Flow(400.0, 20.0)
    assert with_backlog(Flow(100.0, 5.0), signals(lag=9500, busy=0.2), 100.0, 20.0, 300.0) == Flow(100.0, 5.0)


@pytest.mark.parametrize(
    ("load", "workers"),
    [
        (Flow(70.0), 1),
        (Flow(71.0), 2),
        (Flow(140.0), 2),
        (Flow(140.0, 60.0), 2),
        (Flow(140.0, 61.0), 3),
        (Flow(), 0),
    ],
)
def test_the_lasting_rate_gets_a_reserve_and_a_backlog_does_not(load, workers):
    assert workers_for(load, 100.0, 0.7) == workers


@pytest.mark.parametrize(
    ("throttled", "busy", "surplus"), [(True, 0.2, 50.0), (False, 0.2, 0.0), (True, 0.9, 50.0)]
)
def test_a_throttled_backlog_counts_once_for_the_tiers_downstream(throttled, busy, surplus):
    seen = signals(lag=5500, busy=busy, throttled=throttled)
    own = with_backlog(Flow(100.0), seen, 200.0, 0.0, 100.0)
    assert with_throttled_backlog(own, seen, 100.0) == Flow(100.0, surplus)
    assert own.surplus == (surplus if busy > 0.5 else 0.0), "a throttled tier needs no worker for it"
