"""Pauses and wakes single workers of an incarnation, while the others work (decision 32).

Some workers may wait as spares (decision 71). A worker that is lost wakes one at the next check.

A worker is paused when Spark gives it no more tasks and its last task has ended. Its executor
stays, so its shuffle files can be read, and it works again at once when it is woken. A worker that
leaves the tier is paused first, and ends soon after (decision 41). Spark gives a worker
that joins an executor by itself (decision 65), and is ready when it has processed records
(decision 78). An executor that comes while a realtime query runs is warmed first, and works in the
next query (decision 88). `process.life` calls this at each check; no method waits.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from sluice.driver.spark.first_tasks import EMPTY_SECONDS, LOOK_SECONDS, FirstTasks
from sluice.driver.spark.session import executors
from sluice.driver.spark.slots import records_of_running, records_of_stages, summaries
from sluice.driver.spark.spares import choose_spares
from sluice.failures import error_text
from sluice_ops.model.ids import UnitId
from sluice_ops.model.incarnation import WorkerReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger()

ON_ITS_WAY_SECONDS = 0.1
"""After this time a task shows that was already on its way to a worker when the worker was to be
paused.
"""


WARMING_SECONDS = 30.0
"""How long a new executor without a finished task may work before it waits as a spare, so that its
JVM has run the tier's code once.
"""

IN_DRIVER = "driver"
"""Spark's id of the executor of a light tier."""
JOINING_SECONDS = 0.5
"""Time between two looks for workers that have joined."""


class CapacityError(Exception):
    """The incarnation has too few workers to run."""


def refuse_too_few(tier: str, partitions: int, workers: int | None, threads: int) -> None:
    """Raise CapacityError if a realtime query has fewer threads than tasks, each of which keeps its
    thread. A light tier has no workers (None), and the threads of its driver.
    """
    if workers is None:
        if partitions > threads:
            message = (
                f'tier "{tier}": realtime holds a thread for each of the {partitions} partitions that it '
                f"reads, and the driver of this light tier has {threads}; raise driver.threads, and publish"
            )
            raise CapacityError(message)
        return
    if partitions > workers * threads:
        message = (
            f'tier "{tier}": realtime holds a thread for each of the {partitions} partitions that it reads, '
            f"and {workers} workers of {threads} threads have {workers * threads}; run `sluice scale {tier} "
            f"{math.ceil(partitions / threads)}`, or raise quantum.threads. If partitions were added to its "
            "streams, publish first"
        )
        raise CapacityError(message)


@dataclass
class Workers:
    """The workers of one incarnation."""

    in_driver: ClassVar[bool] = False
    """Whether the driver is the only executor."""
    session: "SparkSession | None" = None
    names: frozenset[UnitId] = frozenset()
    """The slots of the workers with which the incarnation began, and of those that joined since."""
    label: str = ""
    """The Spark resource of this incarnation's Workers; each Worker offers one, named as
    its slot.
    """
    threads: int = 0
    """Threads of each worker."""
    to_pause: frozenset[UnitId] = frozenset()
    """The workers that are to be paused, or to leave, or have left, while the incarnation owns the
    tier.
    """
    active: int | None = None
    """How many workers are to work; None: all that are not paused."""
    rests_between_batches: bool = True
    """Whether a worker may become a spare at any time; if not, only before a query begins."""
    spares: frozenset[UnitId] = frozenset()
    """The living workers that wait for work."""
    _receipts: dict[UnitId, WorkerReceipt] = field(default_factory=dict)
    _begun: dict[UnitId, float] = field(default_factory=dict)
    """Since when each worker is being paused or woken. Monotonic clock."""
    _spared: frozenset[str] = frozenset()
    """Executors that get no task of the query, including those that have ended since."""
    _without: frozenset[str] = frozenset()
    """Executors to which the scheduler gives no task now."""
    _all_wait: bool = False
    """Whether no executor gets tasks, because a query is being planned."""
    _in_query: bool = False
    """Whether a realtime query runs, whose tasks stay on their executors."""
    _warm: frozenset[str] = frozenset()
    """Executors that have run the tier's code."""
    _warming_up: frozenset[str] = frozenset()
    """Executors that warm up beside a realtime query; they alone get tasks meanwhile."""
    _without_gap: frozenset[UnitId] = frozenset()
    """Workers that have joined, and whose query has not shown its gap yet."""
    _known: frozenset[str] = frozenset()
    """The executors at the last look."""
    _at_work: frozenset[str] = frozenset()
    """The executors of the workers that worked after the last choice of spares."""
    _new_since: dict[str, float] = field(default_factory=dict)
    """Since when executors without a finished task are known. Monotonic clock."""
    _warming: bool = False
    """Whether a new worker works only until its JVM is warm."""
    _with_summary: frozenset[str] = frozenset()
    """The executors at the last look for workers that have joined."""
    _looked_at: float = -math.inf
    """When that look was. Monotonic clock."""
    first_tasks: dict[UnitId, int] = field(default_factory=dict)
    """By worker: the records that its first tasks had read; 0: no record came, and an empty task
    ended there.
    """
    _first: FirstTasks = field(default_factory=FirstTasks)
    _first_of: frozenset[str] = frozenset()
    """The working executors at the last look for first tasks."""
    _first_looked_at: float = -math.inf
    """When that look was. Monotonic clock."""
    _stages_seen: frozenset[tuple[int, int]] = frozenset()
    _empty_tasks: threading.Thread | None = None
    """The thread that runs empty tasks."""
    _empty_at: float = -math.inf
    """When it began. Monotonic clock."""

    @property
    def awake(self) -> int:
        """The number of workers that are to work."""
        able = len(self.names - self.to_pause)
        return able if self.active is None else min(able, self.active)

    def refuse_too_few(self, tier: str, partitions: int) -> None:
        """Raise CapacityError if a realtime query would have fewer threads than tasks."""
        refuse_too_few(tier, partitions, self.awake, self.threads)

    def working(self) -> frozenset[str]:
        """Return the ids of the executors that get tasks, or will with the next query."""
        executors_now = self._executors()
        return executors_now - self._spared - self._cold_of(executors_now)

    def _cold_of(self, executors_now: frozenset[str]) -> frozenset[str]:
        return executors_now - self._warm if self._in_query else frozenset()

    def cold(self) -> frozenset[str]:
        """Return the executors that have come since the realtime query began, and are not warm.

        Those of paused workers are left out.
        """
        if not (cold := self._cold_of(self._executors())):
            return cold
        able = {worker: each for worker, each in self._summaries().items() if worker not in self.to_pause}
        return cold.intersection(str(executor.id()) for executor in able.values())

    def begin_query(self) -> frozenset[str]:
        """Note that a realtime query begins; return the executors that work in it."""
        working = self.working()
        self._warm |= working
        self._in_query = True
        return working

    def end_query(self) -> None:
        """Note that no realtime query runs: the next one also uses executors that are not warm."""
        cold = self._cold_of(self._known)
        self._in_query = False
        if cold:
            self._distribute(may_rest=False)

    def begin_warm_up(self, cold: frozenset[str]) -> None:
        """Give tasks to these executors only; those of the running query stay where they are."""
        self._warming_up = cold
        self._give_out()

    def end_warm_up(self, *, warm: bool) -> None:
        """Give tasks to all workers again; `warm`: those that warmed up may work from now on."""
        if not self._warming_up:
            return
        if warm:
            self._warm |= self._warming_up
        self._warming_up = frozenset()
        self._distribute(may_rest=False)
        self._offer()
        self._looked_at = -math.inf
        self._note_joined()

    def note_warm(self) -> None:
        """Note that all executors that work have run the tier's code.

        Without a session there are none: a process that makes a cache of class data only warms up.
        """
        if self.session is not None:
            self._warm |= self.working()

    def gone(self, before: frozenset[str]) -> frozenset[str]:
        """Return the executors of `before` that have ended while their workers were not paused."""
        return before - self._executors() - self._spared

    def pause_only(self, to_pause: frozenset[UnitId], active: int | None = None) -> None:
        """Give no more tasks to these workers, and tasks to `active` of the others, or to all."""
        self._note_joined()
        changed, self.to_pause = to_pause ^ self.to_pause, to_pause
        self._begun |= dict.fromkeys(changed, time.monotonic())
        renumbered, self.active = active != self.active, active
        # a waiting worker whose executor has died gets a new executor, which is not spared yet
        some_wait = to_pause or active is not None
        may_change = some_wait or self._in_query
        if changed or renumbered or self._warming or (may_change and self._executors() != self._known):
            self._distribute(may_rest=self.rests_between_batches)

    def rest(self) -> None:
        """Let the workers wait that are not to work; no query runs."""
        if self.active is not None:
            self._distribute(may_rest=True)

    def _distribute(self, *, may_rest: bool) -> None:
        """Choose the spares anew, and let Spark give tasks to the workers that are to work."""
        summaries_now, before = self._summaries(), self.spares
        executors_now = {worker: str(executor.id()) for worker, executor in summaries_now.items()}
        self._known = frozenset(executors_now.values())
        cold = self._cold_of(self._known)
        able = {worker: name for worker, name in executors_now.items() if worker not in self.to_pause}
        chosen = choose_spares(able, self.active, self._at_work, may_rest=may_rest)
        self.spares = chosen - {worker for worker in chosen if self._is_new(summaries_now[worker])}
        self._warming = self.spares != chosen
        self._at_work = frozenset(name for worker, name in able.items() if worker not in chosen)
        resting = {name for worker, name in executors_now.items() if worker in self.to_pause | self.spares}
        self._spared = (self._spared - self._known) | resting | cold
        self._give_out()
        if self.spares != before:
            self._offer()
            log.info("the spare workers changed", spares=sorted(self.spares), before=sorted(before))

    def _is_new(self, executor: Any) -> bool:
        """Tell whether an executor is to run a task before it waits."""
        if not self.rests_between_batches or int(executor.completedTasks()):
            return False
        now = time.monotonic()
        return now < self._new_since.setdefault(str(executor.id()), now) + WARMING_SECONDS

    def receipts(self) -> dict[UnitId, WorkerReceipt]:
        """Return the last receipt of each worker that was paused or woken."""
        due = [
            worker for worker, begun in self._begun.items() if time.monotonic() > begun + ON_ITS_WAY_SECONDS
        ]
        summaries_now = self._summaries() if due else {}
        for worker in due:
            if worker in summaries_now and (
                worker not in self.to_pause or self._is_done(summaries_now[worker])
            ):
                self._note(worker, summaries_now[worker], paused=worker in self.to_pause)
        return dict(self._receipts)

    def _note_joined(self) -> None:
        """Count the workers that have got an executor since the last look, and note receipts."""
        if not self.names or time.monotonic() < self._looked_at + JOINING_SECONDS:
            return
        self._looked_at = time.monotonic()
        executors_now = self._executors()
        if executors_now == self._with_summary:
            return
        cold = self._cold_of(executors_now)
        able = {
            worker: str(each.id()) for worker, each in self._summaries().items() if str(each.id()) not in cold
        }
        self._with_summary = frozenset(able.values())
        for worker in able.keys() - self.names:
            self.names |= {worker}
            self._receipts[worker] = WorkerReceipt(paused=False, seconds=0.0, at=time.time())
            if not self.rests_between_batches:
                self._without_gap |= {worker}
            log.info("a worker has joined", worker=worker)

    def note_gap(self, seconds: float) -> None:
        """Note the gap of the query with which workers have joined; a spare makes none."""
        for worker in self._without_gap:
            gap = 0.0 if worker in self.spares else seconds
            self._receipts[worker] = self._receipts[worker].model_copy(update={"gap_seconds": gap})
        self._without_gap = frozenset()

    def look_at_first_tasks(self, *, records_wait: bool) -> None:
        """Note which workers have processed records; `records_wait`: whether input waits long."""
        now = time.monotonic()
        if not self.names or now < self._first_looked_at + LOOK_SECONDS:
            return
        self._first_looked_at, working = now, self.working()
        watched = self._first.watched(working, now, records_wait=records_wait)
        if not watched and working == self._first_of:
            return
        self._first_of, summaries_now = working, self._summaries()
        self._first.take(self._records_read(watched))
        unfed = self._first.unfed(watched, now)
        run = {str(each.id()) for each in summaries_now.values() if self._has_run_task(each)}
        self._first.note_empty(unfed & run)
        if unfed - run and not self._runs_empty_tasks() and now >= self._empty_at + EMPTY_SECONDS:
            self._empty_at = now
            self._run_empty_tasks()
        before, records = self.first_tasks, self._first.records
        executors_now = {worker: str(executor.id()) for worker, executor in summaries_now.items()}
        self.first_tasks = {
            worker: records[executor] for worker, executor in executors_now.items() if executor in records
        }
        if new := {worker: count for worker, count in self.first_tasks.items() if worker not in before}:
            log.info("workers have run their first tasks", records=new)

    def _has_run_task(self, executor: Any) -> bool:
        """Tell whether an executor runs tasks; those of a realtime query do not end."""
        running = 0 if self.rests_between_batches else int(executor.activeTasks())
        return bool(int(executor.completedTasks()) or running)

    def is_idle(self) -> bool:
        """Tell whether no executor has a task."""
        return not any(self._is_busy(executor) for executor in self._executors())

    @contextmanager
    def all_spared(self) -> Iterator[None]:
        """Give no tasks to any executor meanwhile.

        Tasks of a query that starts wait, and are then spread evenly.
        """
        self._all_wait = True
        self._give_out()
        try:
            yield
        finally:
            self._all_wait = False
            self._give_out()
            self._offer()

    def _is_done(self, executor: Any) -> bool:
        """Tell whether the executor's last task has ended and was counted."""
        return (
            str(executor.id()) in self._spared
            and not self._is_busy(str(executor.id()))
            and int(executor.activeTasks()) == 0
        )

    def _give_out(self) -> None:
        """Let the scheduler give tasks to exactly the executors that are to get some now."""
        without = self._spared
        if self._all_wait:
            without |= self._executors()
        elif self._warming_up:
            without = (without | self._executors()) - self._warming_up
        for executor in without - self._without:
            self._take_out(executor)
        for executor in self._without - without:
            self._put_back(executor)
        self._without = without

    def _note(self, worker: UnitId, executor: Any, *, paused: bool) -> None:
        seconds = round(time.monotonic() - self._begun.pop(worker), 2)
        done, failed = (int(executor.completedTasks()), int(executor.failedTasks())) if paused else (0, 0)
        self._receipts[worker] = WorkerReceipt(
            paused=paused, seconds=seconds, tasks=done, failed=failed, at=time.time()
        )
        log.info(
            "a worker was paused" if paused else "a worker was woken",
            worker=worker,
            seconds=seconds,
            tasks=done,
            failed=failed,
        )

    def _executors(self) -> frozenset[str]:
        assert self.session is not None  # noqa: S101 — with workers there is a session
        return executors(self.session)

    # -- calls of Spark's Scala API, which has no Python counterpart

    @property
    def _context(self) -> Any:
        assert self.session is not None  # noqa: S101
        return self.session.sparkContext._jsc.sc()  # noqa: SLF001

    def _summaries(self) -> dict[UnitId, Any]:
        """Return Spark's summary of the executor of each worker that has one."""
        known, by_worker = self._executors(), dict[UnitId, Any]()
        assert self.session is not None  # noqa: S101
        for summary in summaries(self.session, living=True):
            resource = summary.resources().get(self.label)
            if summary.id() in known and resource.isDefined():
                by_worker[UnitId(resource.get().addresses()[0])] = summary
        return by_worker

    def _records_read(self, executors_new: frozenset[str]) -> dict[str, int]:
        """Return the records that new executors have read since the last look.

        Those in tasks that ended well, and in realtime those of running tasks.
        """
        assert self.session is not None  # noqa: S101
        read, self._stages_seen = records_of_stages(self.session, executors_new, self._stages_seen)
        if self.rests_between_batches:
            return read
        running = records_of_running(self.session)
        return {name: read.get(name, 0) + running.get(name, 0) for name in executors_new}

    def _runs_empty_tasks(self) -> bool:
        return self._empty_tasks is not None and self._empty_tasks.is_alive()

    def _run_empty_tasks(self) -> None:
        """Run a task without records in each thread, beside the driver's loop."""
        self._empty_tasks = threading.Thread(target=self._empty_job, name="empty tasks", daemon=True)
        self._empty_tasks.start()

    def _empty_job(self) -> None:
        assert self.session is not None  # noqa: S101
        context, count = self.session.sparkContext, len(self.names) * self.threads
        jvm: Any = context._jvm  # noqa: SLF001
        try:
            context._jsc.parallelize(jvm.java.util.Collections.nCopies(count, 0), count).count()  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 — of an executor, or of a session that ends
            log.warning("empty tasks of new workers failed; others follow", error=error_text(error))

    def _is_busy(self, executor: str) -> bool:
        return bool(self._context.taskScheduler().isExecutorBusy(executor))

    def _take_out(self, executor: str) -> None:
        """Let the scheduler give an executor no more tasks, as if it were about to end.

        Only the scheduler knows of it.
        """
        assert self.session is not None  # noqa: S101
        jvm: Any = self.session.sparkContext._jvm  # noqa: SLF001
        reason = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "its worker is paused", jvm.scala.Option.empty()
        )
        self._context.schedulerBackend().executorsPendingDecommission().put(executor, reason)

    def _put_back(self, executor: str) -> None:
        self._context.schedulerBackend().executorsPendingDecommission().remove(executor)

    def _offer(self) -> None:
        """Let Spark give out waiting tasks now. By itself it does so each second."""
        self._context.schedulerBackend().reviveOffers()


class NoWorkers(Workers):
    """The workers of a light tier: none. Its driver is the only executor, and always works."""

    in_driver = True

    @property
    def awake(self) -> int:
        """One: the driver."""
        return 1

    def refuse_too_few(self, tier: str, partitions: int) -> None:
        """Raise CapacityError if a realtime query would have fewer threads than tasks."""
        refuse_too_few(tier, partitions, None, self.threads)

    def is_idle(self) -> bool:
        """Tell whether the driver runs no task."""
        return not self._is_busy(IN_DRIVER)

    def _executors(self) -> frozenset[str]:
        return frozenset({IN_DRIVER})

    def _summaries(self) -> dict[UnitId, Any]:
        return {}

    def _give_out(self) -> None:
        """Do nothing: tasks go to the driver, once it has a free thread."""

    def _offer(self) -> None:
        """Do nothing, likewise."""
