"""The workers of an incarnation one by one: one may be paused, and kept, and woken again, while the others work on (decision record 0032).

Paused is a worker that Spark gives no task any more, and that has done its last one. Its executor stays: what it has written for others to
read is still there, and it works again at once. One that is let go ends soon after that (decision record 0041). Called by the life of an
incarnation at each look; nothing here waits.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from sluice.driver.spark.session import executors
from sluice.driver.spark.slots import summaries
from sluice_ops.model.ids import UnitId
from sluice_ops.model.incarnation import WorkerReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger()

ON_ITS_WAY_SECONDS = 0.1
"""A task that was on its way to a worker when that was to have no more shows after so long."""


class CapacityError(Exception):
    """The incarnation cannot run with the workers that it has."""


def refuse_too_few(tier: str, partitions: int, workers: int, threads: int) -> None:
    """Refuse to begin a realtime query that has fewer threads than tasks: each task holds one for as long as the query runs."""
    if partitions > workers * threads:
        message = (
            f'tier "{tier}": realtime holds a thread for each of the {partitions} partitions that it reads, and {workers} workers of '
            f"{threads} threads have {workers * threads}; `sluice scale {tier} {math.ceil(partitions / threads)}`, or raise "
            "quantum.threads. Where partitions were added to its streams, publish before"
        )
        raise CapacityError(message)


@dataclass
class Workers:
    """Those of one incarnation."""

    session: "SparkSession | None" = None
    names: frozenset[UnitId] = frozenset()
    """Of those that it began with, by their slots."""
    label: str = ""
    """The resource of this incarnation's Workers; a Worker's is named as its slot."""
    threads: int = 0
    """Of each."""
    told: frozenset[UnitId] = frozenset()
    """Those that are to be paused, or are to go, or went: these stay told as long as the incarnation owns the tier."""
    _receipts: dict[UnitId, WorkerReceipt] = field(default_factory=dict)
    _begun: dict[UnitId, float] = field(default_factory=dict)
    """Workers on their way, since when, on the monotonic clock."""
    _spared: frozenset[str] = frozenset()
    """Executors that are given no task; those that have ended since, too."""
    _known: frozenset[str] = frozenset()
    """The executors that there were at the last look."""

    @property
    def awake(self) -> int:
        """How many are to work."""
        return len(self.names - self.told)

    def working(self) -> frozenset[str]:
        """Return the executors that are there and are given tasks."""
        return self._executors() - self._spared

    def gone(self, before: frozenset[str]) -> frozenset[str]:
        """Return those of some executors that have ended, and not while their workers were paused."""
        return before - self._executors() - self._spared

    def tell(self, told: frozenset[UnitId]) -> None:
        """Have those workers given no more tasks, and all others given them."""
        changed, self.told = told ^ self.told, told
        self._begun |= dict.fromkeys(changed, time.monotonic())
        # a paused worker whose executor has died is given a new one, which nobody has told yet
        if changed or (told and self._executors() != self._known):
            here = self._here()
            self._known = frozenset(str(executor.id()) for executor in here.values())
            for worker, executor in here.items():
                self._spare(str(executor.id()), spared=worker in told)

    def receipts(self) -> dict[UnitId, WorkerReceipt]:
        """Return what became last of each worker that was paused or woken."""
        due = [
            worker for worker, begun in self._begun.items() if time.monotonic() > begun + ON_ITS_WAY_SECONDS
        ]
        here = self._here() if due else {}
        for worker in due:
            if worker in here and (worker not in self.told or self._is_done(here[worker])):
                self._note(worker, here[worker], paused=worker in self.told)
        return dict(self._receipts)

    def is_idle(self) -> bool:
        """Tell whether none of them has a task."""
        return not any(self._is_busy(executor) for executor in self._executors())

    @contextmanager
    def all_spared(self) -> Iterator[None]:
        """Have nobody given tasks meanwhile: those of a query that begins wait, and are then spread over all that are to work."""
        working = self.working()
        for executor in working:
            self._take_out(executor)
        try:
            yield
        finally:
            for executor in working:
                self._put_back(executor)
            self._offer()

    def _is_done(self, executor: Any) -> bool:
        """Tell whether it has done its last task, and was counted for it."""
        return (
            str(executor.id()) in self._spared
            and not self._is_busy(str(executor.id()))
            and int(executor.activeTasks()) == 0
        )

    def _spare(self, executor: str, *, spared: bool) -> None:
        if spared is (executor in self._spared):
            return
        if spared:
            self._take_out(executor)
            self._spared |= {executor}
        else:
            self._put_back(executor)
            self._spared -= {executor}

    def _note(self, worker: UnitId, executor: Any, *, paused: bool) -> None:
        seconds = round(time.monotonic() - self._begun.pop(worker), 2)
        done, failed = (int(executor.completedTasks()), int(executor.failedTasks())) if paused else (0, 0)
        self._receipts[worker] = WorkerReceipt(
            paused=paused, seconds=seconds, tasks=done, failed=failed, at=time.time()
        )
        log.info("worker", worker=worker, paused=paused, seconds=seconds, tasks=done, failed=failed)

    def _executors(self) -> frozenset[str]:
        assert self.session is not None  # noqa: S101 — who has workers has a session
        return executors(self.session)

    # -- what Spark has no Python for

    @property
    def _context(self) -> Any:
        assert self.session is not None  # noqa: S101
        return self.session.sparkContext._jsc.sc()  # noqa: SLF001

    def _here(self) -> dict[UnitId, Any]:
        """Return what Spark says of the executor of each worker that has one."""
        known, found = self._executors(), dict[UnitId, Any]()
        assert self.session is not None  # noqa: S101
        for summary in summaries(self.session, living=True):
            resource = summary.resources().get(self.label)
            if summary.id() in known and resource.isDefined():
                found[UnitId(resource.get().addresses()[0])] = summary
        return found

    def _is_busy(self, executor: str) -> bool:
        return bool(self._context.taskScheduler().isExecutorBusy(executor))

    def _take_out(self, executor: str) -> None:
        """Have it given no more tasks, as one that is about to end; nobody tells it to, nor anybody else."""
        assert self.session is not None  # noqa: S101
        jvm: Any = self.session.sparkContext._jvm  # noqa: SLF001
        why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "its worker is paused", jvm.scala.Option.empty()
        )
        self._context.schedulerBackend().executorsPendingDecommission().put(executor, why)

    def _put_back(self, executor: str) -> None:
        self._context.schedulerBackend().executorsPendingDecommission().remove(executor)

    def _offer(self) -> None:
        """Have tasks that wait given out now, and not when Spark does so anyway, each second."""
        self._context.schedulerBackend().reviveOffers()
