"""Two executors on two slots, without Spark."""

from types import SimpleNamespace

from sluice.driver.spark.workers import Workers
from sluice_ops.model.ids import UnitId

ONE, OTHER = UnitId("slot-counts-1-0"), UnitId("slot-counts-1-1")
BOTH = frozenset({"0", "1"})


class FakeWorkers(Workers):
    """Workers that record which executors get no tasks."""

    def __init__(self):
        super().__init__(names=frozenset({ONE, OTHER}), threads=1)
        self.on = {ONE: "0", OTHER: "1"}
        self.busy = set()
        self.without_tasks = set()
        self.offered = 0
        self.new = set()
        """Executors that have finished no task."""

    def _executors(self):
        return frozenset(self.on.values())

    def _summaries(self):
        def summary(executor):
            return SimpleNamespace(
                id=lambda: executor,
                completedTasks=lambda: 0 if executor in self.new else 7,
                failedTasks=lambda: 0,
                activeTasks=lambda: int(executor in self.busy),
            )

        return {worker: summary(executor) for worker, executor in self.on.items()}

    def _is_busy(self, executor):
        return executor in self.busy

    def _take_out(self, executor):
        assert executor not in self.without_tasks
        self.without_tasks.add(executor)

    def _put_back(self, executor):
        self.without_tasks.remove(executor)

    def _offer(self):
        self.offered += 1
