"""Counters of a pipeline's own: their names, what they take, and how counts reach the scrape."""

import threading
from collections import Counter as Sums
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import accumulators, taskcontext

from sluice import metrics
from sluice.metrics import ACCUMULATOR, MOST, MetricError, counter
from tests.unit.example_metrics import driver_metrics, families


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Forget every counter, also of other tests' pipelines."""
    monkeypatch.setattr(metrics, "_texts", {})
    monkeypatch.setattr(metrics, "_in_driver", Sums())
    monkeypatch.setattr(accumulators, "_accumulatorRegistry", {})


@pytest.fixture
def in_task(monkeypatch):
    """Return a function that lets a task count in a worker, and returns what Spark carries."""

    def run(count):
        with monkeypatch.context() as worker:
            worker.setattr(taskcontext.TaskContext, "_taskContext", SimpleNamespace())
            worker.setattr(accumulators, "_accumulatorRegistry", {})
            count()
            return {aid: each._value for aid, each in accumulators._accumulatorRegistry.items()}

    return run


def test_a_counter_of_the_driver_is_in_its_scrape():
    bots = counter("bots", "Hits of known bots.")
    assert metrics.totals() == {"bots": 0}, "a counter exists before it counts"
    bots.add()
    bots.add(4)
    bots.add(True)
    bots.add(False)
    assert metrics.totals() == {"bots": 6}
    (family,) = [each for each in families(driver_metrics()) if each.name.startswith("sluice_own")]
    assert (family.name, family.type, family.documentation) == (
        "sluice_own_bots",
        "counter",
        "Hits of known bots.",
    )
    assert [(sample.name, sample.value) for sample in family.samples] == [("sluice_own_bots_total", 6)]


def test_counts_of_tasks_are_carried_by_one_accumulator(in_task):
    metrics.receive()
    metrics.receive()  # a second session of the process keeps the counts
    bots, buys = counter("bots", "Bots."), counter("buys", "Buys.")
    bots.add()

    def task():
        bots.add(2)
        buys.add(3)
        bots.add()
        counter("late", "Declared by the task.").add(7)

    carried = in_task(task)
    assert carried == {ACCUMULATOR: {"bots": 3, "buys": 3, "late": 7}}
    assert metrics.totals() == {"bots": 1, "buys": 0, "late": 0}, "before the task's end"
    accumulators._accumulatorRegistry[ACCUMULATOR] += carried[ACCUMULATOR]
    assert metrics.totals() == {"bots": 4, "buys": 3, "late": 7}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), max_size=6))
def test_the_order_of_tasks_does_not_matter(tasks):
    param = metrics._ADDED
    forward, backward = {}, {}
    for each in tasks:
        forward = param.addInPlace(forward, each)
    for each in reversed(tasks):
        backward = param.addInPlace(backward, each)
    assert forward == backward
    assert {name: count for name, count in forward.items() if count} == dict(
        +sum(map(Sums, tasks), start=Sums())
    )


def test_threads_of_the_driver_lose_no_count():
    bots = counter("bots", "Bots.")
    threads = [threading.Thread(target=lambda: [bots.add() for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.totals() == {"bots": 8000}


@pytest.mark.parametrize("name", ["", "Bots", "2bots", "bots-found", "bots_total", "bots_", "x" * 61, "b\n"])
def test_a_name_that_prometheus_cannot_have_is_refused_with_an_example(name):
    with pytest.raises(MetricError, match=r"begins with a letter.*such as bots_found"):
        counter(name, "Bots.")
    assert metrics.totals() == {}


def test_a_counter_without_a_meaning_is_refused():
    with pytest.raises(MetricError, match="counter bots: say what it counts"):
        counter("bots", " ")


@pytest.mark.parametrize("count", [-1, 0.5, "1", None])
def test_a_counter_takes_only_whole_numbers_that_are_not_negative(count):
    with pytest.raises(MetricError, match="counter bots: add takes a whole number of 0 or more"):
        counter("bots", "Bots.").add(count)


def test_a_counter_may_be_declared_again_but_not_one_for_each_record():
    for number in range(MOST):
        counter(f"n{number}", "Of data.")
    assert counter("n0", "Again, as when a module is loaded again.") == counter("n0", "Of data.")
    with pytest.raises(MetricError, match=r"at most 100 counters.*do not make names of data"):
        counter("one_more", "Of data.")
