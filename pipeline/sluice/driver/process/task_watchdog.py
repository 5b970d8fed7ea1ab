"""Reports tasks that hang, and ends their executors after the limit; the query restarts on others
(decision 52).

`progress_report` calls it every two seconds. An executor with a deadlock in the transform still
sends heartbeats, so no other check finds it.
"""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError

from sluice.driver.counters import HungTask
from sluice.driver.process.task_progress import Limit, Still, TaskProgress, Work
from sluice.driver.spark.slots import reading
from sluice.failures import error_text
from sluice_ops.model.assignment import HUNG_SINCE
from sluice_ops.model.tier import Mode

if TYPE_CHECKING:
    from sluice.driver.engine.settings import EngineConfig
    from sluice.kafka.reader import Streams

log = structlog.get_logger()

END_RETRY_SECONDS = 30.0
"""Time between two tries to end an executor."""
FRAMES = 12
"""Lines of a task's stack in the log."""


class TaskWatchdog:
    """Watches the tasks of one session."""

    def __init__(self, config: "EngineConfig", streams: "Streams") -> None:
        """Ask Kafka through `streams` whether records wait."""
        self._config, self._streams = config, streams
        self._tasks = TaskProgress(config.tier.hangs_after)
        self._limit = Limit(config.tier.hangs_after)
        self._partitions: dict[int, str] = {}
        self._looked = time.monotonic()
        self._again_at = 0.0
        """When Spark's master may be asked again."""
        self._told: dict[int, str] = {}
        """The tasks that were reported, and since when each has hung."""

    def forget(self) -> None:
        """Start again: the tier does not run, or another incarnation owns it."""
        self._tasks.forget()
        self._config.flow.hung = None
        self._looked = time.monotonic()

    def check(self, running: Mapping[int, tuple[str, int]], ends: Mapping[str, int]) -> None:
        """Look at the tasks that run, by place and records read; `ends` of the inputs were asked
        before.
        """
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        hung = [
            still
            for still in self._tasks.hung_tasks(self._works(running), ends, passed, self._counts)
            if self._input_waits(still)
        ]
        self._told = {
            number: since
            for number, since in self._told.items()
            if number in {still.work.number for still in hung}
        }
        if not hung:
            self._config.flow.hung = None
            return
        worst = max(hung, key=lambda still: still.seconds)
        limit = self._limit.now(now)
        self._tell(worst, limit, len(hung))
        if limit is not None and worst.seconds >= limit and now >= self._again_at:
            self._end(worst, now)

    def _works(self, running: Mapping[int, tuple[str, int]]) -> list[Work]:
        session = self._config.session
        queries = session.streams.active if self._config.tier.mode is Mode.REALTIME else []
        if not queries:  # a tier that is held back lets records in by jobs
            return [Work(number, *seen) for number, seen in running.items()]
        if not running.keys() <= self._partitions.keys():
            self._partitions = {
                task.number: task.partition for query in queries for task in reading(session, query)
            }
        return [
            Work(number, *seen, self._partitions[number])
            for number, seen in running.items()
            if number in self._partitions
        ]

    def _counts(self) -> dict[int, str]:
        """Return the SQL counters of the last executions: rows that Python returned, and shuffled
        data.
        """
        store = self._config.session._jsparkSession.sharedState().statusStore()  # noqa: SLF001 — not public
        executions = store.executionsList()
        numbers = [int(executions.apply(index).executionId()) for index in range(executions.size())]
        return {number: str(store.executionMetrics(number)) for number in numbers}

    def _input_waits(self, still: Still) -> bool:
        """Ask Kafka whether a record really waits for a realtime task; senders may have aborted
        what came.
        """
        if still.work.partition is None or still.end is None or still.work.number in self._told:
            return True
        if list(self._streams.next_records({still.work.partition: still.end}, 1)):
            return True
        self._tasks.excuse(still)
        return False

    def _tell(self, worst: Still, limit: float | None, count: int) -> None:
        number = worst.work.number
        since = self._told.get(number) or time.strftime(
            "%H:%M:%S UTC", time.gmtime(time.time() - worst.seconds)
        )
        where = worst.work.place + (
            f", which reads {worst.work.partition}" if worst.work.partition is not None else ""
        )
        others = f" and {count - 1} more" if count > 1 else ""
        consequence = (
            "nothing is done about it (hangs_after is None)"
            if limit is None
            else f"its {self._ended} is ended after {limit:.0f} s"
        )
        sentence = (
            f"{HUNG_SINCE} {since}: input waits, and nothing was processed by a task on {where}{others}; "
            f"{consequence}; the driver's log shows where the task stands"
        )
        self._config.flow.hung = HungTask(worst.seconds, sentence)
        if number not in self._told:
            self._told[number] = since
            log.warning("a task hangs", task=sentence, task_stack=self._stack(worst.work))

    @property
    def _ended(self) -> str:
        """What ends with the task."""
        return "driver" if self._config.workers.in_driver else "executor"

    def _stack(self, work: Work) -> str:
        """Return the top of the task's stack in its executor's JVM, if that answers."""
        try:
            dump = self._config.session.sparkContext._jsc.sc().getTaskThreadDump(  # noqa: SLF001
                work.number, _executor(work)
            )
            return (
                "the executor does not answer"
                if dump.isEmpty()
                else _short(str(dump.get().stackTrace().toString()))
            )
        except Py4JError as error:
            return error_text(error)

    def _end(self, worst: Still, now: float) -> None:
        place = worst.work.place
        if self._config.workers.in_driver:
            log.warning(
                "a task hangs; the driver, which runs it, ends, and the tier starts again",
                seconds=round(worst.seconds),
                task_stack=self._stack(worst.work),
            )
            os._exit(1)
        log.warning(
            "a task hangs; its executor is ended, and the query restarts on other executors",
            executor=place,
            seconds=round(worst.seconds),
            task_stack=self._stack(worst.work),
        )
        self._again_at = now + END_RETRY_SECONDS
        context = self._config.session.sparkContext._jsc.sc()  # noqa: SLF001 — likewise
        if not context.killAndReplaceExecutor(_executor(worst.work)):
            log.warning(
                "Spark's master did not end the executor; it is asked again",
                executor=place,
                seconds=END_RETRY_SECONDS,
            )
            return
        self._limit.ended(now)
        self._tasks.forget()
        self._told.clear()
        self._config.flow.executors_ended += 1


def _executor(work: Work) -> str:
    return work.place.rpartition("/")[2]


def _short(stack: str) -> str:
    return "\n".join(stack.splitlines()[:FRAMES])
