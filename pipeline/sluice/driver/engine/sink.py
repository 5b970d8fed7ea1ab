"""The engine of a tier without state that ends in a sink: a table, files or a service."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import structlog

from sluice.api.sink import Sink
from sluice.driver.engine.batch_engine import BatchEngine, RunStart, ScratchCheckpoint
from sluice.driver.engine.batch_writer import BatchWriter, Stored
from sluice.driver.engine.contract import Control
from sluice.driver.engine.offsets import offsets_option, read_between, read_inputs
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.sink_rows import refuse_namesakes, sink_rows
from sluice.driver.spark.queries import plan
from sluice.failures import error_text
from sluice.kafka.positions import start
from sluice.kafka.reader import Bounds
from sluice.records import lineage
from sluice.sinks.archive import Archive, has_archive
from sluice.sinks.batches import Batch, LastBatch
from sluice.sinks.quarantine import Quarantine
from sluice.sinks.refused import REFUSED, without_refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger()


class RecordJob:
    """Collects the rows of each batch and hands them to the sink; bad records go to quarantine."""

    writes_behind: ClassVar[bool] = True

    def __init__(self, config: EngineConfig, control: Control, sink: Sink, writer: BatchWriter) -> None:
        """Prepare; nothing is read or written yet."""
        self._config, self._control, self._sink, self._writer = config, control, sink, writer
        self.quarantine = Quarantine(
            config.kafka, config.tier.name, config.incarnation, packed=config.packed_lineage
        )

    # -- the query (`BatchJob`)

    def begin(self, last: LastBatch | None, bounds: Bounds) -> RunStart:
        """Begin where the ledger ends, on a new checkpoint."""
        begins = start(bounds.oldest, bounds.ends, [] if last is None else [last.ends], [])
        return RunStart(begins, ScratchCheckpoint(self._config.tier.name))

    def frame(self, begins: dict[str, int], records: int) -> tuple["DataFrame", str]:
        """Return the query from these positions on, with at most so many records in a batch, and
        its output mode.
        """
        options = {
            "startingOffsets": json.dumps(offsets_option(begins)),
            "maxOffsetsPerTrigger": str(records),
        }
        return self.rows_of(read_inputs(self._config, options)), "append"

    def rows_of(self, records: "DataFrame", whole: Sequence[str] = ()) -> "DataFrame":
        """Return the transformed records as a batch collects them; rows from the places in `whole`
        keep all of their lineage.
        """
        tier = self._config.tier
        return lineage.collected(lineage.transformed(records, tier), tier, whole)

    def put(self, rows: pa.Table, batch: Batch, number: int) -> None:
        """Write a batch."""
        del number
        self._writer.put(rows, batch, self)

    def begin_anew(self, last: LastBatch) -> str:
        """Return what a person must do to start the tier with the oldest records; the numbers of
        batches go on.
        """
        tier = self._config.tier
        outside = tier.inputs[0].columns is None
        sinks = ", ".join(sink.name for sink in self._sink.members)
        names = (
            f" (and empty {sinks} and the tier's rows in marks: new records have the names of old ones)"
            if outside
            else ""
        )
        where = f"where tier = '{tier.name}' and batch = {last.number}"
        return f"update ledger set ends = '{{}}' {where}{names}; then run `sluice start {tier.name}`"  # noqa: S608

    def continue_in_new_stream(self, last: LastBatch) -> str:
        """Return what a person must do to continue with the oldest records of a stream that was
        recreated.
        """
        if self._config.tier.inputs[0].columns is None:
            return self.begin_anew(last)
        return f"`sluice skip {self._config.tier.name}` makes it continue with the oldest records that exist"

    # -- the sink (`BatchTarget`)

    def missing(self, batch: Batch, wait_for_turn: Callable[[Batch], Batch | None]) -> Batch | None:
        """Return the part of the batch that the ledger lacks."""
        return wait_for_turn(batch)

    def part_of(self, rows: pa.Table, part: Batch) -> pa.Table:
        """Return the rows that were made of the records of a part of a batch."""
        keep = []
        for place in rows.column(lineage.FROM).to_pylist():
            partition, _, offset = place.rpartition(":")
            keep.append(part.begins[partition] <= int(offset) < part.ends[partition])
        return rows.filter(pa.array(keep, pa.bool_()))

    def write(self, rows: pa.Table, batch: Batch, before: float | None) -> Stored:
        """Write good rows to the sink and bad ones to quarantine; set aside rows that PostgreSQL
        refuses.
        """
        good, bad = self.quarantine.split(rows)
        refuse_namesakes(good)
        good_rows, arrived = sink_rows(good)
        put_quarantined = partial(self.quarantine.put, bad)
        ledger = self._writer.ledger
        try:
            counts = ledger.write(
                batch,
                good_rows,
                epoch=self._control.epoch,
                quarantined=len(bad),
                put_quarantined=put_quarantined,
            )
        except REFUSED as error:
            log.warning(
                "PostgreSQL refuses a batch; the rows that it refuses are set aside, the others are written",
                error=error_text(error),
            )
            accepted = without_refused(
                ledger.refused(good_rows), good, good_rows, partial(self._read_again, batch)
            )
            return self.write(accepted, batch, before)
        now, gap = time.time(), None
        if arrived and before is not None:
            # time without input is no gap
            gap = now - max(before, min(arrived) / 1000)
        return Stored(counts, now, arrived, gap)

    def _read_again(self, batch: Batch, whole: Sequence[str]) -> pa.Table:
        """Return the rows of a batch, those from the places in `whole` with all of their
        lineage.
        """
        return self.rows_of(read_between(self._config, batch.begins, batch.ends), whole).toArrow()


class SinkEngine(BatchEngine):
    """Writes micro-batches into a table, files or a service."""

    def __init__(self, config: EngineConfig, control: Control, sink: Sink) -> None:
        """Prepare; nothing runs yet."""
        writer = BatchWriter(config, control, sink)
        self._records = RecordJob(config, control, sink, writer)
        super().__init__(config, writer, self._records)
        self._archives = [
            Archive(config.postgres, config.home, config.tier.name, member, config.s3)
            for member in sink.members
            if has_archive(member)
        ]
        self._rounds = ThreadPoolExecutor(1, "archive")
        """Writes the archives, so that a slow disk or bucket does not hold the driver up."""
        self._round: Future[None] | None = None
        """The last round that `tick` began."""

    def plan(self) -> None:
        """Plan the rows that a batch collects."""
        plan(self._records.rows_of(read_inputs(self._config, {}, stream=False)))

    def tick(self) -> None:
        """Begin to archive old rows when they are due."""
        due = [archive for archive in self._archives if archive.due()]
        if self._query is None or not due:
            return
        if self._round is None or self._round.done():
            if self._round is not None:
                self._round.result()  # raises an error that no later round would heal
            self._round = self._rounds.submit(_write, due)

    def idle_work(self) -> None:
        """Archive the newest rows."""
        if self._archives:
            self._rounds.submit(_write, self._archives).result()

    def close(self) -> None:
        """Archive the newest rows, and close connections."""
        self.idle_work()
        self._rounds.shutdown()
        for archive in self._archives:
            archive.close()
        super().close()


def _write(archives: Sequence[Archive]) -> None:
    for archive in archives:
        archive.write()
