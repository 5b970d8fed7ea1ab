"""What runs where: from the JVM's status store, so that one can show, say, that a given host processed records."""

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import structlog
from py4j.protocol import Py4JError

from sluice.driver.positions.realtime_progress import Task
from sluice.failures import error_text

if TYPE_CHECKING:
    from pyspark import SparkJobInfo
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = structlog.get_logger()

REALTIME_SCAN = "RealTimeStreamScanExec"
RUNNING = "RUNNING"
REASON_SECONDS = 2.0
"""So long it is waited for how an executor ended."""


def _active_tasks(session: "SparkSession", of: Collection[int] | None = None) -> list[Any]:
    """Return those of all stages that run, or of some."""
    store = session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 — Python's status tracker has no tasks
    found: list[Any] = []
    for stage in session.sparkContext.statusTracker().getActiveStageIds():
        if of is not None and stage not in of:
            continue
        tasks = store.taskList(stage, 0, 1000)
        found.extend(tasks.apply(index) for index in range(tasks.size()))
    return found


def _read(task: Any) -> int:
    metrics = task.taskMetrics()
    return int(metrics.get().inputMetrics().recordsRead()) if metrics.isDefined() else 0


def records_read(session: "SparkSession") -> tuple[int, int]:
    """Return how many records the tasks that run now have read (known to two seconds), and how many tasks run."""
    running = [task for task in _active_tasks(session) if task.status() == RUNNING]
    return sum(_read(task) for task in running), len(running)


def reading(session: "SparkSession", query: "StreamingQuery") -> list[Task]:
    """Return the tasks of a realtime query with what they have read, as far as was heard; none unless all of them run."""
    try:
        if not _running(session, query):  # it is being planned: whoever asks for the plan now waits for that
            return []
        places = _places(query)  # before its tasks: of a batch that has begun meanwhile, they have read less
        tasks = _running(session, query)
    except Py4JError as error:
        log.warning("what its tasks have read is not known", error=error_text(error))
        return []
    if tasks.keys() != set(range(len(places))):
        return []
    return [
        Task(
            int(tasks[index].taskId()), str(tasks[index].executorId()), partition, begin, _read(tasks[index])
        )
        for index, (partition, begin) in enumerate(places)
    ]


def _running(session: "SparkSession", query: "StreamingQuery") -> dict[int, Any]:
    """Return the tasks of a query that run, by their number in its plan."""
    stages = {stage for job in _jobs(session, query) for stage in job.stageIds}
    return {int(task.index()): task for task in _active_tasks(session, stages) if task.status() == RUNNING}


def _places(query: "StreamingQuery") -> list[tuple[str, int]]:
    """Return what each task of a realtime query reads, and where it began: the plan's partitions are tasks in their order."""
    batch = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001 — Python has no public way to the plan of a query that runs
    leaves = batch.executedPlan().collectLeaves() if batch is not None else None
    found = [] if leaves is None else [leaves.apply(index) for index in range(leaves.size())]
    places: list[tuple[str, int]] = []
    for scan in (leaf for leaf in found if leaf.getClass().getSimpleName() == REALTIME_SCAN):
        parts = scan.inputPartitions()
        for index in range(parts.size()):
            offsets = parts.apply(index).offsetRange()
            where = offsets.topicPartition()
            places.append((f"{where.topic()}/{where.partition()}", int(offsets.fromOffset())))
    return places


def has_job(session: "SparkSession", query: "StreamingQuery") -> bool:
    """Tell whether a query has asked for tasks."""
    return bool(_jobs(session, query))


def _jobs(session: "SparkSession", query: "StreamingQuery") -> "list[SparkJobInfo]":
    tracker = session.sparkContext.statusTracker()
    known = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(query.runId))
    return [job for job in known if job is not None]


def summaries(session: "SparkSession", *, living: bool) -> list[Any]:
    """Return what the store says of each executor, and of the driver; of those that are gone too, unless only `living` are asked for."""
    found = session.sparkContext._jsc.sc().statusStore().executorList(living)  # noqa: SLF001 — as above
    return [found.apply(index) for index in range(found.size())]


def why_gone(session: "SparkSession", gone: frozenset[str]) -> str:
    """Say how executors ended, as far as Spark has heard: its store has the reason some time after the executor is gone."""
    over = time.monotonic() + REASON_SECONDS
    while not gone <= (said := _reasons(session)).keys() and time.monotonic() < over:
        time.sleep(0.05)
    return "; ".join(
        f"executor {name} is gone: {said.get(name, 'the log of its slot says why')}" for name in sorted(gone)
    )


def _reasons(session: "SparkSession") -> dict[str, str]:
    """Return how executors ended."""
    return {
        each.id(): each.removeReason().get()
        for each in summaries(session, living=False)
        if each.removeReason().isDefined()
    }


class SlotCounts:
    """Counts records by executor over the life of a session, across batches whose stages the store forgets."""

    def __init__(self, session: "SparkSession") -> None:
        """Begin at nothing."""
        self._session = session
        self._tasks: dict[int, tuple[str, int]] = {}
        self._ended: dict[str, int] = {}
        self.running: dict[int, tuple[str, int]] = {}
        """The tasks that ran when it was read last: where, and how many records each had read."""

    def read(self) -> dict[str, int]:
        """Return records (a batch tier: tasks) by `address/executor`."""
        slots: dict[str, int] = {}
        places: dict[str, str] = {}
        for executor in summaries(self._session, living=False):
            if executor.id() == "driver":
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
                running[number] = (place, max(_read(task), self._tasks.get(number, ("", 0))[1]))
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
