"""Tells from the JVM's status store which executor runs which task, and how many records each has
read.
"""

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast

import structlog
from py4j.protocol import Py4JError

from sluice.driver.positions.realtime_progress import Task
from sluice.driver.spark.session import RUNNING_TASKS
from sluice.failures import error_text

if TYPE_CHECKING:
    from pyspark import SparkJobInfo
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = structlog.get_logger()

REALTIME_SCAN = "RealTimeStreamScanExec"
RUNNING = "RUNNING"
REASON_SECONDS = 2.0
"""How long to wait for Spark's report how an executor ended."""


def _active_tasks(session: "SparkSession", stages: Collection[int] | None = None) -> list[Any]:
    """Return the tasks of all active stages, or of those in `stages`."""
    # Python's status tracker has no tasks
    store = session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
    tasks: list[Any] = []
    for stage in session.sparkContext.statusTracker().getActiveStageIds():
        if stages is not None and stage not in stages:
            continue
        of_stage = store.taskList(stage, 0, 1000)
        tasks.extend(of_stage.apply(index) for index in range(of_stage.size()))
    return tasks


def _read(task: Any) -> int:
    metrics = task.taskMetrics()
    return int(metrics.get().inputMetrics().recordsRead()) if metrics.isDefined() else 0


def _reads(session: "SparkSession") -> Callable[[Any], int]:
    """Return a function that tells how many records a task has read, as last reported."""
    if session.conf.get("spark.plugins", None) != RUNNING_TASKS:
        return _read
    tasks = cast("Any", session.sparkContext._jvm).sluice.RunningTasks  # noqa: SLF001 — as above
    return lambda task: max(_read(task), int(tasks.read(task.taskId())))


def records_read(session: "SparkSession", query: "StreamingQuery | None" = None) -> tuple[int, int]:
    """Return how many records the running tasks have read, at most two seconds ago, and how many
    tasks run; with `query`, only its tasks.
    """
    stages = None if query is None else _stages(session, query)
    running = [task for task in _active_tasks(session, stages) if task.status() == RUNNING]
    return sum(map(_reads(session), running)), len(running)


def records_of_running(session: "SparkSession") -> dict[str, int]:
    """Return how many records the running tasks of each executor have read."""
    read, read_by = dict[str, int](), _reads(session)
    for task in _active_tasks(session):
        if task.status() == RUNNING:
            read[str(task.executorId())] = read.get(str(task.executorId()), 0) + read_by(task)
    return read


def records_of_stages(
    session: "SparkSession", executors: Collection[str], seen: Collection[tuple[int, int]]
) -> tuple[dict[str, int], frozenset[tuple[int, int]]]:
    """Return the records that these executors read in complete stages, without those in `seen`.

    Return also the complete stages that the store has: number and attempt. A stage in which a task
    of an executor failed does not count for this executor.
    """
    context, read = session.sparkContext, dict[str, int]()
    store, jvm = context._jsc.sc().statusStore(), cast("Any", context._jvm)  # noqa: SLF001 — as above
    complete = jvm.java.util.Collections.singletonList(
        jvm.org.apache.spark.status.api.v1.StageStatus.COMPLETE
    )
    quantiles = getattr(store, "stageList$default$4")()
    listed = store.stageList(complete, False, False, quantiles, jvm.java.util.ArrayList())
    stages = {
        (int(stage.stageId()), int(stage.attemptId())): stage
        for stage in (listed.apply(index) for index in range(listed.size()))
    }
    for key, stage in stages.items():
        if key in seen or not int(stage.inputRecords()) + int(stage.shuffleReadRecords()):
            continue
        by_executor = store.executorSummary(*key)
        for executor in executors:
            summary = by_executor.get(executor)
            if summary.isDefined() and not summary.get().failedTasks():
                records = summary.get().inputRecords() + summary.get().shuffleReadRecords()
                read[executor] = read.get(executor, 0) + int(records)
    return read, frozenset(stages)


def reading(session: "SparkSession", query: "StreamingQuery") -> list[Task]:
    """Return the tasks of a realtime query with the records they have read, as last reported; none
    unless all run.
    """
    try:
        if not _running(
            session, query
        ):  # Spark is planning the query, and a question for the plan would wait
            return []
        read = _reads(session)
        places = _places(query)  # before the tasks: those of a batch that begins meanwhile have read less
        tasks = _running(session, query)
    except Py4JError as error:
        log.warning("the JVM does not tell what tasks have read", error=error_text(error))
        return []
    if tasks.keys() != set(range(len(places))):
        return []
    return [
        Task(int(tasks[index].taskId()), str(tasks[index].executorId()), partition, begin, read(tasks[index]))
        for index, (partition, begin) in enumerate(places)
    ]


def _running(session: "SparkSession", query: "StreamingQuery") -> dict[int, Any]:
    """Return the running tasks of a query, by their number in its plan."""
    tasks = _active_tasks(session, _stages(session, query))
    return {int(task.index()): task for task in tasks if task.status() == RUNNING}


def _stages(session: "SparkSession", query: "StreamingQuery") -> set[int]:
    return {stage for job in _jobs(session, query) for stage in job.stageIds}


def _places(query: "StreamingQuery") -> list[tuple[str, int]]:
    """Return the partition and first offset of each task of a realtime query, in the order of the
    tasks.
    """
    # Python has no public way to the plan of a running query
    batch = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001
    leaves = batch.executedPlan().collectLeaves() if batch is not None else None
    nodes = [] if leaves is None else [leaves.apply(index) for index in range(leaves.size())]
    places: list[tuple[str, int]] = []
    for scan in (node for node in nodes if node.getClass().getSimpleName() == REALTIME_SCAN):
        parts = scan.inputPartitions()
        for index in range(parts.size()):
            offsets = parts.apply(index).offsetRange()
            partition = offsets.topicPartition()
            places.append((f"{partition.topic()}/{partition.partition()}", int(offsets.fromOffset())))
    return places


def has_job(session: "SparkSession", query: "StreamingQuery") -> bool:
    """Tell whether a query has a job, so that it has been planned."""
    return bool(_jobs(session, query))


def _jobs(session: "SparkSession", query: "StreamingQuery") -> "list[SparkJobInfo]":
    tracker = session.sparkContext.statusTracker()
    known = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(query.runId))
    return [job for job in known if job is not None]


def summaries(session: "SparkSession", *, living: bool) -> list[Any]:
    """Return the store's summaries of the driver and the executors; with `living`, without
    executors that are gone.
    """
    listed = session.sparkContext._jsc.sc().statusStore().executorList(living)  # noqa: SLF001 — as above
    return [listed.apply(index) for index in range(listed.size())]


def why_gone(session: "SparkSession", gone: frozenset[str]) -> str:
    """Return a message how executors ended.

    Spark knows the reason some time after an executor is gone.
    """
    deadline = time.monotonic() + REASON_SECONDS
    while not gone <= (reasons := _reasons(session)).keys() and time.monotonic() < deadline:
        time.sleep(0.05)
    return "; ".join(
        f"executor {name} is gone: {reasons.get(name, 'the log of its slot says why')}"
        for name in sorted(gone)
    )


def _reasons(session: "SparkSession") -> dict[str, str]:
    """Return Spark's reasons why executors ended, by executor."""
    return {
        summary.id(): summary.removeReason().get()
        for summary in summaries(session, living=False)
        if summary.removeReason().isDefined()
    }


class SlotCounts:
    """Counts records by executor over the life of a session, also of stages that the store has
    forgotten.
    """

    def __init__(self, session: "SparkSession") -> None:
        """Begin at zero."""
        self._session = session
        self._in_driver = session.sparkContext.master.startswith("local[")
        self._reads = _reads(session)
        self._tasks: dict[int, tuple[str, int]] = {}
        self._ended: dict[str, int] = {}
        self.running: dict[int, tuple[str, int]] = {}
        """The tasks that ran at the last read: their executors, and how many records each
        had read.
        """

    def read(self) -> dict[str, int]:
        """Return records, or tasks of a tier in mode batch, by `address/executor`."""
        slots: dict[str, int] = {}
        places: dict[str, str] = {}
        for executor in summaries(self._session, living=False):
            if executor.id() == "driver" and not self._in_driver:
                continue
            address = executor.hostPort().rpartition(":")[0]
            places[executor.id()] = f"{address}/{executor.id()}"
            slots[places[executor.id()]] = executor.completedTasks()
        running: dict[int, tuple[str, int]] = {}
        self.running = {}
        for task in _active_tasks(self._session):
            place = places.get(task.executorId())
            if place is not None:
                number = int(task.taskId())
                running[number] = (place, max(self._reads(task), self._tasks.get(number, ("", 0))[1]))
                if task.status() == RUNNING:
                    self.running[number] = running[number]
        for task, (place, count) in self._tasks.items():
            if task not in running:
                self._ended[place] = self._ended.get(place, 0) + count
        self._tasks = running
        for place, count in (*self._ended.items(), *running.values()):
            if place in slots:
                slots[place] += count
        return slots
