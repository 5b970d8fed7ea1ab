"""The workers of an incarnation one by one: one may be paused, and kept, and woken again, while the others work on (decision record 0027).

Paused is a worker whose executor has done its last task and ended, and that Spark's Master starts no other one on: its slot and its place
stay. Called by the life of an incarnation at each look; nothing here waits.
"""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from ops.model.ids import UnitId
from ops.model.incarnation import WorkerReceipt
from pipeline.driver.session import executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger()


@dataclass
class Workers:
    """Those of one incarnation."""

    session: "SparkSession | None" = None
    slots: int = 0
    label: str = ""
    """The resource of this incarnation's Workers; a Worker's is named as its slot."""
    let_go: frozenset[str] = frozenset()
    """Executors that were ended on purpose."""
    receipts: dict[UnitId, WorkerReceipt] = field(default_factory=dict)
    """What became last of each worker that was paused or woken."""
    _told: frozenset[UnitId] = frozenset()
    _begun: dict[UnitId, float] = field(default_factory=dict)
    """Workers on their way, since when, on the monotonic clock."""
    _executors: dict[UnitId, str] = field(default_factory=dict)
    """The executor that each worker had when it was to be paused."""

    @property
    def awake(self) -> int:
        """How many are to have an executor."""
        return self.slots - len(self._told)

    def keep(self, told: frozenset[UnitId]) -> dict[UnitId, WorkerReceipt]:
        """Have those workers paused and all others awake, a step at a time; return what has become of them so far."""
        if told != self._told:
            self._change(told)
        if self._begun:
            here = self._here()
            for worker in [each for each in self._begun if (each in here) is (each not in told)]:
                self._note(worker, paused=worker in told)
        return dict(self.receipts)

    def _change(self, told: frozenset[UnitId]) -> None:
        here, now = self._here(), time.monotonic()
        pausing, waking = told - self._told, self._told - told
        self._told = told
        self._ask_for(self.awake)
        for worker in pausing:
            if (executor := here.get(worker)) is not None:
                self._executors[worker] = executor
                self.let_go |= {executor}
                self._drain(executor)
        self._begun |= dict.fromkeys(pausing | waking, now)
        log.info("workers", paused=sorted(told), awake=self.awake)

    def _note(self, worker: UnitId, *, paused: bool) -> None:
        seconds = time.monotonic() - self._begun.pop(worker)
        done, failed = self._tasks(self._executors.get(worker)) if paused else (0, 0)
        self.receipts[worker] = WorkerReceipt(paused=paused, seconds=round(seconds, 2), tasks=done, failed=failed, at=time.time())
        log.info("worker", worker=worker, paused=paused, seconds=round(seconds, 2), tasks=done, failed=failed)

    # -- what Spark has no Python for

    @property
    def _context(self) -> Any:
        assert self.session is not None  # noqa: S101 — who has workers has a session
        return self.session.sparkContext._jsc.sc()  # noqa: SLF001

    @property
    def _jvm(self) -> Any:
        assert self.session is not None  # noqa: S101
        return self.session.sparkContext._jvm  # noqa: SLF001

    def _here(self) -> dict[UnitId, str]:
        """Return the executor of each worker that has one."""
        assert self.session is not None  # noqa: S101
        known, found = executors(self.session), dict[UnitId, str]()
        summaries = self._context.statusStore().executorList(True)  # noqa: FBT003 — Java has no keywords
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            resource = summary.resources().get(self.label)
            if summary.id() in known and resource.isDefined():
                found[UnitId(resource.get().addresses()[0])] = str(summary.id())
        return found

    def _tasks(self, executor: str | None) -> tuple[int, int]:
        """Return how many tasks an executor has done, and how many failed on it."""
        summaries = self._context.statusStore().executorList(False)  # noqa: FBT003
        for index in range(summaries.size()):
            summary = summaries.apply(index)
            if summary.id() == executor:
                return int(summary.completedTasks()), int(summary.failedTasks())
        return 0, 0

    def _ask_for(self, count: int) -> None:
        self._context.requestTotalExecutors(count, 0, self._jvm.scala.Predef.Map().empty())

    def _drain(self, executor: str) -> None:
        why = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("its worker is paused", self._jvm.scala.Option.empty())
        self._context.schedulerBackend().decommissionExecutor(executor, why, False, False)  # noqa: FBT003
