"""First tasks of new workers: a record that was read, or an empty task where none came."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api.hooks import Hooks
from sluice.driver.counters import Flow
from sluice.driver.process.heartbeat import Pulse
from sluice.driver.process.life import Life
from sluice.driver.spark import workers as module
from sluice.driver.spark.first_tasks import EMPTY_SECONDS, LOOK_SECONDS, WATCHED_SECONDS, FirstTasks
from sluice.driver.spark.slots import records_of_running, records_of_stages
from sluice.driver.state.hook_state import InternalStates
from sluice_ops.model.incarnation import Directive
from tests.unit.sluice.fake_life import Query, ScriptedFollower
from tests.unit.sluice.fake_workers import ONE, OTHER, FakeWorkers


class ReadingWorkers(FakeWorkers):
    """Workers with a clock, and with the records that their executors have read."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.now, self.read, self.looks, self.empty_runs = 100.0, {}, 0, 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: 0.0))

    def _records_read(self, executors):
        self.looks += 1
        return {name: count for name, count in self.read.items() if name in executors}

    def _run_empty_tasks(self):
        self.empty_runs += 1

    def look(self, seconds=LOOK_SECONDS, *, wait=False):
        self.now += seconds
        self.look_at_first_tasks(records_wait=wait)
        return self.first_tasks


@pytest.fixture
def workers(monkeypatch):
    return ReadingWorkers(monkeypatch)


def test_a_worker_is_noted_with_the_records_of_its_first_tasks(workers):
    assert workers.look() == {}
    workers.read = {"0": 40}
    assert workers.look() == {ONE: 40}
    workers.read = {"0": 900, "1": 3}
    assert workers.look() == {ONE: 40, OTHER: 3}, "only the first tasks count"


def test_nobody_looks_at_tasks_when_each_worker_has_processed_records(workers):
    workers.read = {"0": 1, "1": 1}
    workers.look()
    looks = workers.looks
    workers.look(100 * LOOK_SECONDS)
    assert workers.looks == looks


def test_a_new_executor_of_a_worker_has_to_process_records_again(workers):
    workers.read = {"0": 1, "1": 1}
    workers.look()
    workers.on[ONE] = "2"
    assert workers.look() == {OTHER: 1}
    workers.read = {"2": 7}
    assert workers.look() == {ONE: 7, OTHER: 1}


def test_a_worker_without_records_runs_an_empty_task_after_a_while(workers):
    workers.new = {"0", "1"}
    workers.look()
    workers.look(EMPTY_SECONDS - 1)
    assert workers.empty_runs == 0
    assert workers.look(1.0) == {}
    assert workers.empty_runs == 1
    workers.new = {"1"}
    assert workers.look() == {ONE: 0}
    assert workers.empty_runs == 1, "the next empty tasks wait"
    workers.look(EMPTY_SECONDS)
    assert workers.empty_runs == 2


def test_a_worker_gets_no_empty_task_while_records_wait(workers):
    workers.new = {"1"}
    workers.read = {"0": 1}
    for _ in range(30):
        workers.look(wait=True)
    assert (workers.first_tasks, workers.empty_runs) == ({ONE: 1}, 0)
    workers.look(EMPTY_SECONDS)
    assert workers.empty_runs == 1


@pytest.mark.parametrize(("rests", "expected"), [(False, {ONE: 0}), (True, {})])
def test_a_running_task_is_an_empty_task_only_in_realtime(workers, rests, expected):
    workers.rests_between_batches, workers.new, workers.busy = rests, {"0", "1"}, {"0"}
    workers.look()
    assert workers.look(EMPTY_SECONDS) == expected


def test_a_spare_has_no_first_task_until_it_works(workers):
    workers.read = {"0": 1, "1": 1}
    workers.pause_only(frozenset(), 1)
    assert workers.look() == {ONE: 1}
    workers.pause_only(frozenset(), 2)
    assert workers.look() == {ONE: 1, OTHER: 1}


def test_a_worker_is_not_watched_for_ever(workers):
    workers.look(wait=True)
    workers.look(WATCHED_SECONDS, wait=True)
    looks = workers.looks
    workers.look(wait=True)
    assert workers.looks == looks


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from("abc")),
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
            st.floats(0, 2 * EMPTY_SECONDS),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_an_empty_task_counts_only_where_no_record_came_or_waited(looks):
    first, now, quiet, since = FirstTasks(), 0.0, 0.0, {}
    for working, records, seconds, wait in looks:
        now += seconds
        quiet = now if wait else quiet
        since = {name: since.get(name, now) for name in working}
        before = {name: count for name, count in first.records.items() if name in working}
        watched = first.watched(working, now, records_wait=wait)
        assert watched <= working - before.keys()
        first.take({name: count for name, count in records.items() if name in watched})
        unfed = first.unfed(watched, now)
        assert all(now >= max(quiet, since[name]) + EMPTY_SECONDS for name in unfed)
        assert not any(records.get(name) for name in unfed)
        first.note_empty(unfed)
        assert first.records == before | dict.fromkeys(unfed, 0) | {
            name: records[name] for name in watched if records.get(name)
        }


# -- the driver's life


class AskedWorkers(FakeWorkers):
    """Workers that note whether records may have waited at each look."""

    def __init__(self, first_tasks):
        super().__init__()
        self.first_tasks, self.asked = first_tasks, []

    def look_at_first_tasks(self, *, records_wait):
        self.asked.append(records_wait)


@pytest.mark.parametrize(
    ("directives", "first_tasks", "flow", "expected"),
    [
        ([Directive.STANDBY] * 2, {}, Flow(), [False]),
        ([Directive.STANDBY] * 2, {ONE: 5}, Flow(), [True]),
        ([Directive.STANDBY] * 2, {ONE: 0}, Flow(), [False]),
        ([Directive.RUN], {}, Flow(), [True]),
        ([Directive.RUN], {}, Flow(looked=1.0, waiting={"in": 0.0}), [False]),
        ([Directive.RUN], {}, Flow(looked=1.0, waiting={"in": 2.5}), [True]),
    ],
    ids=["warm, without records", "warm", "warm, empty tasks", "not measured", "quiet", "records wait"],
)
def test_the_driver_reports_first_tasks_and_knows_whether_records_wait(
    tmp_path, directives, first_tasks, flow, expected
):
    follower, workers = ScriptedFollower(1, directives, []), AskedWorkers(first_tasks)
    states = InternalStates(tmp_path, Hooks())
    Life(follower, Query([]), states, flow, workers, Pulse(lambda: None)).live()
    assert workers.asked == expected
    assert follower.report.first_tasks == first_tasks


# -- Spark's store


class Values:
    """A Scala sequence."""

    def __init__(self, values):
        self.values = values

    def size(self):
        return len(self.values)

    def apply(self, index):
        return self.values[index]


def option(value):
    return SimpleNamespace(isDefined=lambda: value is not None, get=lambda: value)


def stage(number, **read):
    """Return a complete stage: by executor, the records that it read and its failed tasks."""
    return SimpleNamespace(
        stageId=lambda: number,
        attemptId=lambda: 0,
        inputRecords=lambda: sum(records for records, _ in read.values()),
        shuffleReadRecords=lambda: 0,
        read=read,
    )


def session_of(*stages):
    """Return a session whose store has these complete stages."""

    def executor_summary(number, _attempt):
        (of_stage,) = [each for each in stages if each.stageId() == number]
        summaries = {
            name: SimpleNamespace(
                failedTasks=lambda failed=failed: failed,
                inputRecords=lambda records=records: records,
                shuffleReadRecords=lambda: 0,
            )
            for name, (records, failed) in of_stage.read.items()
        }
        return SimpleNamespace(get=lambda name: option(summaries.get(name)))

    store = SimpleNamespace(stageList=lambda *_: Values(stages), executorSummary=executor_summary)
    setattr(store, "stageList$default$4", list)
    status = SimpleNamespace(COMPLETE="COMPLETE")
    v1 = SimpleNamespace(StageStatus=status)
    spark = SimpleNamespace(status=SimpleNamespace(api=SimpleNamespace(v1=v1)))
    jvm = SimpleNamespace(
        java=SimpleNamespace(
            util=SimpleNamespace(
                ArrayList=list, Collections=SimpleNamespace(singletonList=lambda value: [value])
            )
        ),
        org=SimpleNamespace(apache=SimpleNamespace(spark=spark)),
    )
    context = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context, _jvm=jvm))


def test_records_count_in_complete_stages_without_failed_tasks():
    session = session_of(stage(3, a=(40, 0), b=(7, 1)), stage(4, a=(2, 0), b=(0, 0)), stage(5))
    read, seen = records_of_stages(session, {"a", "b", "c"}, ())
    assert {name: count for name, count in read.items() if count} == {"a": 42}
    assert seen == {(3, 0), (4, 0), (5, 0)}


def test_a_stage_counts_once():
    session = session_of(stage(3, a=(40, 0)))
    _, seen = records_of_stages(session, {"a"}, ())
    assert records_of_stages(session, {"a"}, seen) == ({}, seen)


def test_records_of_running_tasks_are_summed_by_executor(monkeypatch):
    def task(executor, records, status="RUNNING"):
        metrics = SimpleNamespace(inputMetrics=lambda: SimpleNamespace(recordsRead=lambda: records))
        return SimpleNamespace(
            status=lambda: status, executorId=lambda: executor, taskMetrics=lambda: option(metrics)
        )

    tasks = [task("0", 5), task("0", 6), task("1", 0), task("1", 9, "SUCCESS")]
    monkeypatch.setattr("sluice.driver.spark.slots._active_tasks", lambda _: tasks)
    session = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None))
    assert records_of_running(session) == {"0": 11, "1": 0}
