"""What runs where: from the JVM's status store, so that one can show, say, that a given host processed records."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _active_tasks(session: "SparkSession") -> list[Any]:
    store = session.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 — Python's status tracker has no tasks
    found: list[Any] = []
    for stage in session.sparkContext.statusTracker().getActiveStageIds():
        tasks = store.taskList(stage, 0, 1000)
        found.extend(tasks.apply(index) for index in range(tasks.size()))
    return found


def _read(task: Any) -> int:
    metrics = task.taskMetrics()
    return int(metrics.get().inputMetrics().recordsRead()) if metrics.isDefined() else 0


def records_read(session: "SparkSession") -> tuple[int, int]:
    """Return how many records the tasks that run now have read (known to two seconds), and how many tasks run."""
    running = [task for task in _active_tasks(session) if task.status() == "RUNNING"]
    return sum(_read(task) for task in running), len(running)


def has_job(session: "SparkSession", run: str) -> bool:
    """Tell whether a run of a query has asked for tasks."""
    return bool(session.sparkContext.statusTracker().getJobIdsForGroup(run))


def summaries(session: "SparkSession", *, living: bool) -> list[Any]:
    """Return what the store says of each executor, and of the driver; of those that are gone too, unless only `living` are asked for."""
    found = session.sparkContext._jsc.sc().statusStore().executorList(living)  # noqa: SLF001 — as above
    return [found.apply(index) for index in range(found.size())]


def why_gone(session: "SparkSession", gone: frozenset[str]) -> str:
    """Say how executors ended, as far as Spark has heard."""
    said = {each.id(): each.removeReason().get() for each in summaries(session, living=False) if each.removeReason().isDefined()}
    return "; ".join(f"executor {name} is gone: {said.get(name, 'its log says why')}" for name in sorted(gone))


class SlotCounts:
    """Counts records by executor over the life of a session, across batches whose stages the store forgets."""

    def __init__(self, session: "SparkSession") -> None:
        """Begin at nothing."""
        self._session = session
        self._tasks: dict[int, tuple[str, int]] = {}
        self._ended: dict[str, int] = {}

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
        for task in _active_tasks(self._session):
            place = places.get(task.executorId())
            if place is not None:
                running[int(task.taskId())] = (place, max(_read(task), self._tasks.get(int(task.taskId()), ("", 0))[1]))
        for task, (place, count) in self._tasks.items():
            if task not in running:
                self._ended[place] = self._ended.get(place, 0) + count
        self._tasks = running
        for place, count in (*self._ended.items(), *running.values()):
            if place in slots:
                slots[place] += count
        return slots
