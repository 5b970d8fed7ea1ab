"""Paused and woken workers: which executors get tasks, and when."""

from types import SimpleNamespace

import pytest

from sluice.driver.spark import workers as module
from sluice.driver.spark.workers import (
    JOINING_SECONDS,
    ON_ITS_WAY_SECONDS,
    WARMING_SECONDS,
    CapacityError,
    refuse_too_few,
)
from sluice_ops.model.ids import UnitId
from tests.unit.sluice.fake_workers import BOTH, ONE, OTHER, FakeWorkers

JOINED = UnitId("slot-counts-1-2")
SOON = ON_ITS_WAY_SECONDS * 2


class ClockedWorkers(FakeWorkers):
    """Workers with their own clock, which advances before each look."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.now = 100.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: 0.0))

    def look(self, paused, seconds=SOON, active=None):
        self.pause_only(frozenset(paused), active)
        self.now += seconds
        return self.receipts()


@pytest.fixture
def workers(monkeypatch):
    return ClockedWorkers(monkeypatch)


def test_a_worker_pauses_after_its_last_task_and_its_executor_stays(workers):
    workers.busy = {"0"}
    assert workers.look({ONE}) == {}
    assert workers.without_tasks == {"0"}
    assert (workers.awake, workers.working()) == (1, {"1"})
    workers.busy = set()
    receipt = workers.look({ONE})[ONE]
    assert (receipt.paused, receipt.tasks, receipt.failed) == (True, 7, 0)
    assert receipt.seconds == 2 * SOON, "the time counts from the request"
    assert workers.gone(BOTH) == frozenset(), "a paused executor must not end"


def test_a_task_may_be_on_its_way_at_the_request_to_pause(workers):
    assert workers.look({ONE}, seconds=0.0) == {}
    workers.busy = {"0"}
    assert workers.look({ONE}) == {}


def test_a_worker_is_woken_at_once(workers):
    workers.look({ONE, OTHER})
    workers.busy = {"1"}
    woken = workers.look({OTHER})
    assert (woken[ONE].paused, woken[OTHER].paused) == (False, True)
    assert workers.without_tasks == {"1"}
    assert workers.working() == {"0"}


def test_a_worker_woken_before_its_pause_was_never_paused(workers):
    workers.busy = {"0"}
    workers.look({ONE})
    assert not workers.look(set())[ONE].paused
    assert workers.without_tasks == set()


def test_the_replacement_of_a_dead_paused_worker_gets_no_tasks(workers):
    workers.look({ONE})
    workers.on[ONE] = "2"
    workers.look({ONE})
    assert workers.without_tasks == {"0", "2"}
    assert workers.gone(BOTH) == frozenset(), "the dead executor had no tasks, so it does not count as gone"
    workers.look(set())
    assert workers.without_tasks == {"0"}
    assert workers.working() == {"1", "2"}


def test_a_worker_that_joins_is_reported_once_it_has_an_executor(workers):
    assert workers.look(set()) == {}
    workers.on[JOINED] = "2"
    workers.now += JOINING_SECONDS
    assert workers.look(set())[JOINED].paused is False
    assert (workers.awake, workers.working()) == (3, BOTH | {"2"})
    assert workers.look({JOINED})[JOINED].paused, "it is paused as any other"


def test_a_worker_that_left_and_joins_again_is_woken(workers):
    workers.look({OTHER})
    del workers.on[OTHER]
    workers.now += JOINING_SECONDS
    assert workers.look(set())[OTHER].paused, "it is not woken before it has an executor"
    workers.on[OTHER] = "2"
    assert workers.look(set())[OTHER].paused is False


def test_a_worker_without_executor_pauses_once_its_next_one_registers(workers):
    del workers.on[ONE]
    assert workers.look({ONE}) == {}
    workers.on[ONE] = "2"
    assert workers.receipts() == {}, "the new executor may still get a task"
    assert workers.look({ONE})[ONE].paused
    assert workers.without_tasks == {"2"}


def test_an_executor_that_dies_while_it_works_is_gone(workers):
    workers.look({ONE})
    workers.on[OTHER] = "2"
    assert workers.gone(BOTH) == {"1"}


def test_no_worker_gets_tasks_while_all_are_spared(workers):
    workers.look({ONE})
    with workers.all_spared():
        assert workers.without_tasks == {"0", "1"}
        assert workers.working() == {"1"}, "the worker is still to work"
    assert workers.without_tasks == {"0"}
    assert workers.offered == 1


def test_the_last_worker_waits_as_a_spare(workers):
    workers.look(set(), active=1)
    assert (workers.spares, workers.without_tasks, workers.awake) == ({OTHER}, {"1"}, 1)
    assert workers.working() == {"0"}


def test_a_lost_worker_wakes_a_spare_and_comes_back_as_the_spare(workers):
    workers.look(set(), active=1)
    del workers.on[ONE]
    workers.look(set(), active=1)
    assert (workers.spares, workers.working()) == (set(), {"1"})
    workers.on[ONE] = "2"
    workers.look(set(), active=1)
    assert (workers.spares, workers.working()) == ({ONE}, {"1"})


def test_an_executor_that_was_replaced_unseen_leaves_one_at_work(workers):
    workers.look(set(), active=1)
    workers.on[ONE] = "2"
    workers.look(set(), active=1)
    assert workers.spares in ({ONE}, {OTHER})
    assert len(workers.working()) == 1


def test_a_higher_number_wakes_a_spare_at_once(workers):
    workers.look(set(), active=1)
    workers.look(set(), active=2)
    assert (workers.spares, workers.without_tasks) == (set(), set())
    assert workers.offered == 2, "waiting tasks are given out at once"


def test_a_pause_of_the_working_worker_wakes_the_spare(workers):
    workers.look(set(), active=1)
    assert workers.look({ONE}, active=1)[ONE].paused
    assert workers.working() == {"1"}


def test_a_new_worker_runs_a_task_before_it_waits(workers):
    workers.new = {"1"}
    workers.look(set(), active=1)
    assert (workers.spares, workers.working()) == (set(), BOTH)
    workers.new = set()
    workers.look(set(), active=1)
    assert workers.spares == {OTHER}


def test_a_new_worker_without_records_waits_after_a_while(workers):
    workers.new = {"1"}
    workers.look(set(), active=1, seconds=WARMING_SECONDS + 1)
    workers.look(set(), active=1)
    assert workers.spares == {OTHER}


def test_a_realtime_worker_rests_only_before_a_query_begins(workers):
    workers.rests_between_batches = False
    workers.look(set(), active=2)
    workers.look(set(), active=1)
    assert workers.spares == set(), "its task lasts as long as the query"
    workers.rest()
    assert workers.spares == {OTHER}
    workers.look(set(), active=2)
    assert workers.spares == set(), "but it is woken at once"


def test_a_realtime_query_is_not_begun_with_fewer_threads_than_partitions():
    refuse_too_few("enrich", 6, 3, 2)
    with pytest.raises(
        CapacityError,
        match=r"each of the 7 partitions .* 3 workers of 2 threads have 6; run `sluice scale enrich 4`",
    ):
        refuse_too_few("enrich", 7, 3, 2)
    with pytest.raises(CapacityError, match="0 workers of 4 threads have 0; run `sluice scale enrich 1`"):
        refuse_too_few("enrich", 1, 0, 4)


def test_a_light_realtime_tier_needs_a_thread_for_each_partition():
    refuse_too_few("enrich", 4, None, 4)
    with pytest.raises(CapacityError, match=r"the driver of this light tier has 4; raise driver\.threads"):
        refuse_too_few("enrich", 5, None, 4)
