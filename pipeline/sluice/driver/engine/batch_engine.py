"""The engine of a tier with a sink: a query of micro-batches, restarted in place when it fails.

`BatchEngine` runs the query. A `BatchJob` says what the query reads and what happens to each batch:
`sink` has the one without state, `stateful` the one with state.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa
import structlog

from sluice.driver.control.restarts import Restarts
from sluice.driver.control.wait_for_services import restart, restart_or_raise
from sluice.driver.engine.batch_cost import BatchCost
from sluice.driver.engine.batch_writer import BatchWriter
from sluice.driver.engine.contract import Engine
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.warm_up import ENOUGH_RECORDS, MOST_SECONDS, level, warm_up_range
from sluice.driver.engine.write_behind import WriteBehind
from sluice.driver.spark.queries import is_idle
from sluice.driver.state.offset_log import ends
from sluice.failures import error_text
from sluice.kafka.positions import refuse_shorter
from sluice.kafka.reader import Bounds
from sluice.kafka.truncation import ReadAgainError
from sluice.sinks.batches import Batch, LastBatch
from sluice.sinks.fence import FencedError
from sluice_ops.model.incarnation import Receipt, Repartitioned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

log = structlog.get_logger()

TOO_LARGE = ("spark.driver.maxResultSize", "OutOfMemoryError", "exited with code 52")
"""Spark's words for a batch that is larger than the driver may collect, or than an executor can
hold.
"""
SMALLER = 4
"""After such a batch, batches are smaller by this factor for as long as the incarnation runs."""


class QueryCheckpoint(Protocol):
    """The checkpoint of one run's query."""

    @property
    def location(self) -> str:
        """Where Spark writes it."""

    def ends(self, number: int) -> dict[str, int]:
        """Return the positions at which a batch of the query ends."""

    def drop(self) -> None:
        """Remove it if no later run can use it."""


class ScratchCheckpoint:
    """A checkpoint in a temporary folder, which no later run uses."""

    def __init__(self, tier: str) -> None:
        """Make the folder."""
        self._folder = Path(tempfile.mkdtemp(prefix=f"sluice-{tier}-"))

    @property
    def location(self) -> str:
        """The folder."""
        return str(self._folder)

    def ends(self, number: int) -> dict[str, int]:
        """Return the positions at which a batch of the query ends."""
        return ends(self._folder, number)

    def drop(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class RunStart:
    """Where and on which checkpoint a run begins."""

    begins: dict[str, int]
    checkpoint: QueryCheckpoint
    repartitioned: Repartitioned | None = None
    """How the state was repartitioned as the run began, if it was."""


class BatchJob(Protocol):
    """What the query of a tier with a sink reads, and what happens to each batch."""

    writes_behind: ClassVar[bool]
    """Whether the query may go on before a batch is written.

    The ledger alone has to say then where the next run begins.
    """

    def begin(self, last: LastBatch | None, bounds: Bounds) -> RunStart:
        """Prepare a run that follows the ledger's last batch; `bounds` are those of the inputs."""

    def frame(self, begins: dict[str, int], records: int) -> tuple["DataFrame", str]:
        """Return the query from these positions on, with at most so many records in a batch, and
        its output mode.
        """

    def put(self, rows: pa.Table, batch: Batch, number: int) -> None:
        """Write a batch; `number` is Spark's."""

    def begin_anew(self, last: LastBatch) -> str:
        """Return what a person must do to start the tier with the oldest records."""

    def continue_in_new_stream(self, last: LastBatch) -> str:
        """Return what a person must do to continue with the oldest records of a stream that was
        recreated.
        """


def query_name(config: EngineConfig) -> str:
    """Return the name of the incarnation's query in Spark."""
    return f"{config.tier.name} {config.incarnation}"


def is_too_large(error: BaseException) -> bool:
    """Tell whether a batch failed because it did not fit into memory."""
    text = error_text(error)
    return any(sign in text for sign in TOO_LARGE)


class BatchEngine(Engine):
    """Runs the micro-batches of a job."""

    def __init__(self, config: EngineConfig, writer: BatchWriter, job: BatchJob) -> None:
        """Prepare; nothing runs yet."""
        self._config, self._writer, self._job = config, writer, job
        self._query: StreamingQuery | None = None
        self._checkpoint: QueryCheckpoint | None = None
        """The checkpoint of the query that runs."""
        self._behind = WriteBehind()
        self._error: BaseException | None = None
        """Why a batch failed, which ends the query."""
        self._restarts = Restarts(limit=5, seconds=120.0, first_wait=0.5)
        self._most = config.tier.max_offsets
        """The most records of a batch."""
        self._read: dict[str, int] = {}
        """Where the last batch of the query ends."""
        self._cost = BatchCost()

    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run small batches over recent records, and discard their rows, until the batches get no
        quicker.
        """
        begins, _ = warm_up_range(self._config)
        batch_seconds: list[float] = []

        def discard(frame: "DataFrame", _number: int) -> None:
            begun = time.monotonic()
            frame.toArrow()
            batch_seconds.append(time.monotonic() - begun)

        self._checkpoint = ScratchCheckpoint(self._config.tier.name)
        # a quarter, since four batches are needed to judge, even of one partition
        query = self._start(self._checkpoint, begins, discard, records=ENOUGH_RECORDS // 4)
        deadline = time.monotonic() + MOST_SECONDS
        while (
            go_on()
            and query.exception() is None
            and not level(batch_seconds)
            and not is_idle(query)
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        failure = query.exception()
        query.stop()
        self._drop_checkpoint()
        log.info("warmed up", batches=[round(seconds, 2) for seconds in batch_seconds])
        if failure is not None and not is_too_large(failure):
            raise failure

    def run(self) -> Receipt:
        """Start where the ledger ends."""
        config = self._config
        self._writer.hold()  # a write that goes on beside the query ends before the ledger is read
        self._behind.drop()
        last = self._writer.ledger.last()
        config.streams.renew()
        self._writer.check_inputs(last, self._job.continue_in_new_stream)
        bounds = config.streams.bounds(config.inputs)
        self._drop_checkpoint()
        start = self._job.begin(last, bounds)
        self._checkpoint = start.checkpoint
        if last is not None:
            way_out = f"if its records may count as new, {self._job.begin_anew(last)}"
            refuse_shorter(last.ends, bounds.ends, way_out)
        self._writer.begin(start.begins)
        config.flow.away = None
        self._error, self._read = None, start.begins
        self._query = self._start(start.checkpoint, start.begins, self._take, records=self._most)
        log.info("the query runs", begins=start.begins)
        return self._receipt(
            start.begins, None if last is None else last.number, repartitioned=start.repartitioned
        )

    def hold(self) -> Receipt:
        """Let a transaction finish that has begun, and stop the query."""
        self._restarts.begun()
        self._writer.hold()
        if self._query is not None:
            self._query.stop()
            self._query = None
        self._behind.drop()
        return self._receipt(self.positions(), self._writer.ledger.number if self._writer.has_turn else None)

    def check(self) -> None:
        """Restart a query that has ended, up to the limit; raise its error above it, and
        FencedError at once.
        """
        query, now = self._query, time.monotonic()
        if query is not None and (failure := self._behind.failure()) is not None:
            self._error = failure
            query.stop()
        if query is not None and not query.isActive and isinstance(self._error, ReadAgainError):
            log.info("the query restarts", why=str(self._error))
            self._query = None
            self._restarts.put_off(now, 0.0)
        elif query is not None and not query.isActive:
            error = self._error or query.exception() or RuntimeError("the query ended without an error")
            restart_or_raise(error, self._restarts, self._config.flow, give_up=isinstance(error, FencedError))
            self._query = None
        if self._restarts.overdue(now) >= 0:
            restart(self.run, self._restarts, self._config.flow)

    def caught_up(self) -> bool:
        """Tell whether the run has written its first batch, or has nothing to write."""
        query = self._query
        if query is None or not query.isActive:
            return False
        return self._writer.has_turn or (is_idle(query) and not self._behind.busy)

    def gap(self) -> float | None:
        """Return the time from the tier's last batch before to the first batch of this
        incarnation.
        """
        return self._writer.gap

    def positions(self) -> dict[str, int]:
        """Return where the last batch ends that this incarnation wrote, or found written by
        another.
        """
        return dict(self._writer.done)

    def last_batch(self) -> "StreamingQueryProgress | None":
        """Return Spark's progress report of the query's last batch, if the query runs."""
        query = self._query
        return None if query is None else query.lastProgress

    def close(self) -> None:
        """Close the ledger's connections, and remove the checkpoint."""
        self._behind.close()
        self._writer.ledger.close()
        self._drop_checkpoint()

    def _receipt(
        self, positions: dict[str, int], batch: int | None, repartitioned: Repartitioned | None = None
    ) -> Receipt:
        logs = self._writer.logs
        return Receipt(
            positions=positions,
            batch=batch,
            repartitioned=repartitioned,
            streams=logs.streams,
            epochs=logs.epochs,
            at=time.time(),
        )

    def _start(
        self,
        checkpoint: QueryCheckpoint,
        begins: dict[str, int],
        take: "Callable[[DataFrame, int], None]",
        *,
        records: int,
    ) -> "StreamingQuery":
        frame, mode = self._job.frame(begins, records)
        writer = frame.writeStream.foreachBatch(take).queryName(query_name(self._config)).outputMode(mode)
        writer = writer.option("checkpointLocation", checkpoint.location)
        return writer.trigger(processingTime="0 seconds").start()

    def _drop_checkpoint(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.drop()
            self._checkpoint = None

    def _take(self, frame: "DataFrame", number: int) -> None:
        """Collect a batch of the query, and have the job write it."""
        begun = self._config.flow.batch_began = time.monotonic()
        try:
            with self._config.flow.phases.labels("collect").time():
                rows = frame.toArrow()
            batch = self._batch(number)
            self._behind.finish()
            write = partial(self._job.put, rows, batch, number)
            # only with a backlog, so that a batch is otherwise written when the query is idle
            if self._job.writes_behind and batch.is_full(self._most):
                self._behind.begin(write)
            else:
                write()
            self._read = batch.ends
        except BaseException as error:
            self._error = error
            if is_too_large(error):
                self._most = max(1, self._batch(number).records // SMALLER)
                log.warning(
                    "a batch did not fit into the memory of driver or slot; batches are smaller from now on",
                    records=self._most,
                )
            raise
        finally:
            self._config.flow.batch_began = None
        self._count_time(batch, time.monotonic() - begun)
        if not batch.is_full(self._most):
            self._writer.wait_for_interval()

    def _count_time(self, batch: Batch, seconds: float) -> None:
        flow = self._config.flow
        self._cost.add(batch.records / max(1, self._config.workers.awake), seconds)
        flow.busy_seconds += seconds
        flow.fixed_seconds += self._cost.fixed

    def _batch(self, number: int) -> Batch:
        assert self._checkpoint is not None  # noqa: S101 — a query that runs has one
        reached = self._checkpoint.ends(number)
        return Batch({partition: self._read.get(partition, 0) for partition in reached}, reached)
