"""The engine of a tier that holds state in Spark: each run begins on files of an earlier checkpoint
(decision 16).
"""

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import structlog
from confluent_kafka import KafkaException

from sluice.api.sink import Absorbed, OutboxRecord, Rows, SinkAwayError, Unfit
from sluice.driver.engine.batch_engine import BatchEngine, QueryCheckpoint, RunStart, query_name
from sluice.driver.engine.batch_writer import QUIET_SECONDS, BatchWriter, Stored
from sluice.driver.engine.contract import Control
from sluice.driver.engine.offsets import offsets_option, read_inputs
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.state.checkpoint_disk import CheckpointDisk, require_room
from sluice.driver.state.checkpoint_selection import Candidate
from sluice.driver.state.checkpoint_store import Depot
from sluice.driver.state.checkpoints import (
    LEDGER_BATCHES,
    Checkpoints,
    Code,
    as_candidate,
    counts,
    in_force,
)
from sluice.driver.state.repartition import repartition
from sluice.failures import error_text, is_disk_full
from sluice.kafka.positions import RecordsGoneError, start
from sluice.kafka.reader import Bounds, StreamError, Streams, arrived
from sluice.postgres import UNAVAILABLE
from sluice.records.routing import KEY, PARTITION, VALUE
from sluice.records.state_inputs import (
    absorbed_counts,
    batch_watermark,
    hold_watermark,
    output_mode,
    transformed_with_state,
)
from sluice.records.watermark import Watermark
from sluice.sinks.batches import Batch, LastBatch
from sluice.sinks.outbox import Outbox
from sluice.sinks.table import Latest
from sluice_ops.model.incarnation import Receipt, Repartitioned
from sluice_ops.model.savepoint import StartFrom, why_unusable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger()

UNREADABLE = ("CANNOT_LOAD_STATE_STORE", "Checksum error", "Incomplete log file")
"""Spark's words for a checkpoint whose state, or log, it cannot read."""
LATE_SECONDS = 60.0
"""Time between two warnings that records came too late."""
STRAGGLER_SECONDS = 70.0
"""Spark's background thread uploads the state of an ended query for up to a minute more. An upload
brings a removed folder back; so long after the first removal it is removed again.
"""
REST_SECONDS = 5.0
"""Time between two looks into the outbox while nothing comes in."""
AHEAD = 500
"""After each batch, so many of the waiting records of all partitions together are looked at."""
TRIES = 3
"""After so many checkpoints that cannot be loaded the state is built again: the damage is in a file
that all of them share."""


class StateGoneError(Exception):
    """No checkpoint has the state, and the records to build it again are gone."""


def damaged(error: BaseException | None) -> bool:
    """Tell whether a query ended because Spark could not read its checkpoint."""
    return error is not None and any(words in str(error) for words in UNREADABLE)


def older(endings: Sequence[LastBatch], damaged: Sequence[int]) -> Sequence[LastBatch]:
    """Return the ledger's batches whose checkpoints may be tried: those before all damaged ones;
    none after TRIES. Pure.
    """
    if len(damaged) >= TRIES:
        return ()
    return [last for last in endings if last.number < min(damaged, default=last.number + 1)]


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column.

    A value that Python cannot represent becomes `Unfit`, so the tier continues.
    """
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return Unfit(f"{_raw(scalar)} does not fit its column: {error}")


def _raw(scalar: pa.Scalar) -> str:
    """Return a text that distinguishes the value from others, for it may be a key."""
    try:
        return str(scalar.cast(pa.string()).as_py())
    except UnicodeDecodeError:
        return str(scalar.cast(pa.binary()).as_py().decode(errors="backslashreplace"))
    except pa.ArrowException:
        return "the value"


class Changes:
    """The newest row of each key that is not written yet."""

    def __init__(self, sink: Latest) -> None:
        """Begin with none."""
        self._sink = sink
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._records: dict[tuple[Any, ...], OutboxRecord] = {}
        """If the tier has a stream: the record of each row."""

    def take(self, rows: pa.Table) -> None:
        """Replace older rows of the same keys by those of a batch."""
        columns = [values(rows.column(name)) for name in self._sink.columns]
        key_indexes = [list(self._sink.columns).index(name) for name in self._sink.key]
        keys = []
        for row in zip(*columns, strict=True):
            keys.append(tuple(row[index] for index in key_indexes))
            self._rows[keys[-1]] = row
        if VALUE in rows.column_names:
            records = (rows.column(name).to_pylist() for name in (PARTITION, KEY, VALUE))
            self._records |= zip(
                keys, itertools.starmap(OutboxRecord, zip(*records, strict=True)), strict=True
            )

    def rows(self) -> Rows:
        """Return them in the form that a sink takes."""
        columns = list(zip(*self._rows.values(), strict=True)) or [() for _ in self._sink.columns]
        records = [self._records[key] for key in self._rows] if self._records else ()
        return Rows(dict(zip(self._sink.columns, columns, strict=True)), [], [], records)


class RunCheckpoint:
    """The checkpoint of a run, which later runs may begin from."""

    def __init__(self, checkpoints: Checkpoints, run: str) -> None:
        """Name the run's folder."""
        self._checkpoints, self._run = checkpoints, run

    @property
    def location(self) -> str:
        """The folder's URL."""
        return self._checkpoints.depot.url(self._run)

    def ends(self, number: int) -> dict[str, int]:
        """Return the positions at which a batch of the query ends."""
        return self._checkpoints.ends(self._run, number)

    def drop(self) -> None:
        """Keep it for the next run."""


class StateJob:
    """Takes each batch into the state, and writes the rows that the state changed."""

    writes_behind: ClassVar[bool] = False
    """The checkpoint must not be ahead of the ledger by more than a batch."""

    def __init__(
        self, config: EngineConfig, control: Control, sink: Latest, depot: Depot, writer: BatchWriter
    ) -> None:
        """Prepare; nothing is read or written yet."""
        self._config, self._control, self._sink, self._writer = config, control, sink, writer
        origin = None if config.savepoint is None else config.savepoint.origin
        self.checkpoints = Checkpoints(depot, Code(config.release, config.holds, origin))
        self.run: str | None = None
        """The folder of the checkpoint of the query that runs; a warm-up's is elsewhere."""
        self._changes = Changes(sink)
        self._watermark = Watermark()
        tier = config.tier
        self._outbox = (
            Outbox(
                config.postgres, config.kafka, tier.name, config.incarnation, sink.name, tier.outputs[0].name
            )
            if tier.outputs
            else None
        )
        self._sent = True
        """Whether the tier's stream has got all that this run has put into the outbox."""
        self._send_again = 0.0
        """When the rest of the outbox is sent next. Monotonic clock."""
        self._ahead = Streams(config.kafka)
        """Reads waiting records; used by the query's own thread alone."""
        self._absorbed = Absorbed()
        """What the batches after `_since` absorbed."""
        self._since = -1
        """The ledger's batch at whose end the ledger and this state were last the same."""
        self._level: dict[str, int] = {}
        """Positions that the ledger is known to have reached, and this state has too."""
        self._kept: int | None = None
        """Spark's first batch that was written, until Spark has committed it and older checkpoints
        are removed.
        """
        self._damaged: list[int] = []
        """The ledger's batches whose checkpoints Spark could not load, since one was loaded."""
        self._loaded: int | None = None
        """The ledger's batch whose checkpoint the run began from."""
        self._warned = -LATE_SECONDS
        """When the last warning about late records was logged. Monotonic clock."""
        self._pruned = False
        self._again = inf
        """When checkpoints of the same code are removed again. Monotonic clock."""
        self._others: int | None = None
        """From this batch of the ledger on, checkpoints of other code are not needed: no run would
        begin from them.
        """

    # -- the query (`BatchJob`)

    def begin(self, last: LastBatch | None, bounds: Bounds) -> RunStart:
        """Begin from the newest checkpoint that the ledger vouches for; without one, build the
        state again.

        DiskFullError: the checkpoints' disk is full. StateGoneError: the records to build the state
        are gone, or the tier has to begin from a savepoint that cannot be used.
        """
        config, self.run = self._config, None
        require_room(self.checkpoints.depot)
        begun = in_force(config.savepoint, self._writer.ledger)
        batches = [] if last is None else self._writer.ledger.last_batches(LEDGER_BATCHES)
        written = [ending for ending in batches if counts(ending, begun)]
        endings = [ending for ending in written if ending.is_followed(bounds.oldest)]
        for key, value in self.checkpoints.depot.query.items():
            config.session.conf.set(key, value)
        checkpoint, candidate, repartitioned = self._take_up(
            endings, begun, bounds, has_written=bool(written)
        )
        self._changes, self._absorbed, self._watermark = Changes(self._sink), Absorbed(), Watermark()
        self._kept, self._pruned, self._again, self._others = None, False, inf, None
        self._loaded = None if candidate is None else candidate.number
        self._since = -1 if candidate is None else candidate.number
        if candidate is not None:
            known = [dict(candidate.committed.ends)]
        elif last is not None:
            known = [self._writer.ledger.begins()]
            log.warning(
                "no checkpoint is of a batch in the ledger; "
                "the state is built again from the tier's first record on",
                begins=known,
            )
        else:
            known = []
        try:
            self._level = start(bounds.oldest, bounds.ends, known, [])
        except RecordsGoneError as gone:
            complete = "undamaged " if self._damaged else ""
            message = (
                f"{self.checkpoints.depot} has no {complete}checkpoint of any of the last {LEDGER_BATCHES} "
                "batches in the ledger, and the records from which the state could be built again are gone "
                "from Kafka; restore the checkpoints; or, to count again from the oldest records, "
                f"{self._delete_and_start()}"
            )
            raise StateGoneError(message) from gone
        return RunStart(self._level, checkpoint, repartitioned)

    def frame(self, begins: dict[str, int], records: int) -> tuple["DataFrame", str]:
        """Return the query from these positions on, with at most so many records in a batch, and
        its output mode.
        """
        config, offsets = self._config, offsets_option(begins)
        inputs = [
            read_inputs(
                config,
                {"startingOffsets": json.dumps({name: offsets[name]}), "maxOffsetsPerTrigger": str(records)},
                [name],
            )
            for name in config.inputs
        ]
        partitions = {stream.name: config.streams.partitions(stream.name) for stream in config.tier.outputs}
        results = transformed_with_state(inputs, config.tier, partitions)
        return results, output_mode(results)

    def put(self, rows: pa.Table, batch: Batch, number: int) -> None:
        """Keep the changed rows, write them when it is the run's turn, and hold the watermark."""
        since = self._since
        self._changes.take(rows)
        name = query_name(self._config)
        query = next(query for query in self._config.session.streams.active if query.name == name)
        self._absorbed += absorbed_counts(query)
        self._writer.put(rows, replace(batch, watermark=batch_watermark(query)), self)
        with self._config.flow.phases.labels("watermark").time():
            hold_watermark(query, self._watermark, self._waiting(batch.ends))
        if self._since != since:
            self._damaged = []
            if not self._pruned and self._kept is None:
                self._kept = number

    def begin_anew(self, last: LastBatch) -> str:
        """Return what a person must do to start the tier with the oldest records."""
        del last
        return self._delete_and_start()

    def continue_in_new_stream(self, last: LastBatch) -> str:
        """Return the same as `begin_anew`: the state counts records of the old stream."""
        return self.begin_anew(last)

    def _delete_and_start(self) -> str:
        tier, table = self._config.tier.name, self._sink.name
        return f"delete the tier's rows in ledger and in {table}, and run `sluice start {tier}`"

    # -- the table of results (`BatchTarget`)

    def missing(self, batch: Batch, wait_for_turn: Callable[[Batch], Batch | None]) -> Batch | None:
        """Return what the ledger lacks, once this state has everything that the ledger has."""
        begins = {partition: self._level.get(partition, 0) for partition in batch.ends}
        lacking = wait_for_turn(replace(batch, begins=begins))
        if lacking is None:
            self._level = batch.ends
        elif not batch.reaches(lacking.begins):
            return None
        return lacking

    def part_of(self, rows: pa.Table, part: Batch) -> pa.Table:
        """Return all rows: a row is the state at the batch's end, and belongs to each part."""
        del part
        return rows

    def write(self, rows: pa.Table, batch: Batch, before: float | None) -> Stored:
        """Write all changes since this state and the ledger were last the same."""
        del rows  # they are among the changes
        ledger = self._writer.ledger
        absorbed = self._absorbed - ledger.absorbed(self._since)
        if not self._sent:
            self._send()
        counts = ledger.write(batch, self._changes.rows(), epoch=self._control.epoch, absorbed=absorbed)
        now = time.time()
        if counts.late > 0 and time.monotonic() >= self._warned + LATE_SECONDS:
            self._warned = time.monotonic()
            log.warning(
                "records came too late for the state and are in none of its results; "
                "look for a sender that was away or whose clock is wrong, or raise State.lateness",
                batch=ledger.number,
                late=counts.late,
            )
        self._level, self._since = batch.ends, ledger.number
        self._changes, self._absorbed = Changes(self._sink), Absorbed()
        self._try_to_send()
        gap = None if before is None else now - before
        # after a longer time the input was quiet, or the owner died
        return Stored(counts, now, [], gap if gap is not None and gap < QUIET_SECONDS else None)

    # -- the stream of changes

    def send_rest(self) -> None:
        """Send now and then, as the owner, what another one left: perhaps no batch comes soon."""
        outbox, due = self._outbox, time.monotonic() >= self._send_again
        if outbox is not None and self._control.owns and due and not outbox.sends:
            self._send_again = time.monotonic() + REST_SECONDS
            self._try_to_send()

    def _try_to_send(self) -> None:
        was_sent = self._sent
        try:
            self._send()
        except (*UNAVAILABLE, SinkAwayError, StreamError) as error:
            self._config.flow.away = error_text(error)
            log.warning("the tier's stream does not get its records yet", error=error_text(error))
        else:
            if not was_sent:
                self._config.flow.away = None

    def _send(self) -> None:
        """Send what is in the outbox. SinkAwayError or StreamError: Kafka does not take it now."""
        if self._outbox is not None:
            self._sent = False
            self._outbox.send(self._control.epoch)
            self._sent = True

    # -- checkpoints

    def failed(self, error: BaseException | None, query_error: BaseException | None) -> None:
        """Prepare the restart of a failed query.

        Pass over a checkpoint that Spark could not load. Remove the run's checkpoint if its disk
        was full before the first batch was written, to make room for the next run.
        """
        if self._loaded is not None and damaged(query_error):
            self._pass_over(self._loaded)
        if error is not None and is_disk_full(error) and self.run is not None and not self._writer.has_turn:
            self.checkpoints.depot.remove(self.run)

    def prune(self) -> None:
        """Remove checkpoints of other runs once no run needs them: soon those of the same code,
        later all; those of the same code twice, for late uploads.
        """
        run, kept, ledger = self.run, self._kept, self._writer.ledger
        if (
            run is not None
            and kept is not None
            and self._control.owns
            and self.checkpoints.committed(run, kept)
        ):
            self._kept, self._pruned, self._others = None, True, ledger.number + LEDGER_BATCHES
            self._again = time.monotonic() + STRAGGLER_SECONDS
            self.checkpoints.prune(run, others=False)
        if run is not None and time.monotonic() >= self._again:
            self._again = inf
            self.checkpoints.prune(run, others=False)
        if run is not None and self._others is not None and ledger.number >= self._others:
            self._others = None
            self.checkpoints.prune(run, others=True)

    def close(self) -> None:
        """Close connections."""
        self._ahead.close()
        if self._outbox is not None:
            self._outbox.close()

    def _take_up(
        self, endings: Sequence[LastBatch], begun: StartFrom | None, bounds: Bounds, *, has_written: bool
    ) -> tuple[QueryCheckpoint, Candidate | None, Repartitioned | None]:
        """Make the run's checkpoint from the newest one that can be loaded, with the wanted number
        of partitions. `has_written`: the ledger has batches since the start `begun`.
        """
        config = self._config
        while True:
            saved, why = (None, "") if begun is None else self._saved(begun, bounds)
            self.run, candidate = self.checkpoints.begin(
                config.incarnation, older(endings, self._damaged), saved
            )
            if begun is not None and candidate is None and not has_written:
                raise StateGoneError(self._back_refused(begun, why))
            if candidate is None or candidate.committed.partitions == config.partitions:
                return RunCheckpoint(self.checkpoints, self.run), candidate, None
            try:
                self.run, repartitioned = repartition(
                    config.session,
                    self.checkpoints,
                    config.incarnation,
                    self.run,
                    candidate.committed,
                    config.partitions,
                )
            except Exception as error:
                if not damaged(error):
                    raise
                self._pass_over(candidate.number)
            else:
                return RunCheckpoint(self.checkpoints, self.run), candidate, repartitioned

    def _saved(self, begun: StartFrom, bounds: Bounds) -> tuple[Candidate | None, str]:
        """Return the state of the savepoint from which the tier was started; None if it cannot be
        used. The text says why a run that needs it cannot begin.
        """
        savepoint = self.checkpoints.savepoint(begun.name)
        if savepoint is None:
            return None, "it was removed"
        if savepoint.number in self._damaged:
            return None, "Spark cannot read its files"
        if not self.checkpoints.fits(savepoint):
            return None, f"release {self._config.release} keeps another state"
        batch = self._writer.ledger.batch(savepoint.number)
        ends = None if batch is None else batch.ends
        why = why_unusable(savepoint, ends, self._writer.logs.streams, bounds.oldest)
        return (as_candidate(savepoint), "files of it are missing") if why is None else (None, why)

    def _back_refused(self, begun: StartFrom, why: str) -> str:
        tier = self._config.tier.name
        return (
            f"{tier} was started from savepoint {begun.name}, which cannot be used: {why}; choose another "
            f"one of `sluice savepoints`: `sluice stop {tier}`, then `sluice start {tier} --from NAME`"
        )

    def _pass_over(self, number: int) -> None:
        self._damaged.append(number)
        log.warning("Spark cannot read the checkpoint; an older one is taken", run=self.run, ledger=number)

    def _waiting(self, ends: dict[str, int]) -> list[int] | None:
        """Return when the next waiting records of each partition arrived; None where Kafka does not
        answer.
        """
        outside = {stream.name for stream in self._config.tier.inputs if stream.columns is None}
        try:
            waiting = self._ahead.next_records(ends, max(1, AHEAD // len(ends)))
            return [arrived(message, outside=message.topic() in outside) for message in waiting]
        except (StreamError, KafkaException) as error:
            log.warning(
                "Kafka does not tell which records wait; the watermark stays where it is", error=str(error)
            )
            return None


class StatefulEngine(BatchEngine):
    """Writes the results of a state, in micro-batches, into a table."""

    def __init__(self, config: EngineConfig, control: Control, sink: Latest, depot: Depot) -> None:
        """Prepare; nothing runs yet."""
        writer = BatchWriter(config, control, sink)
        self._state = StateJob(config, control, sink, depot, writer)
        super().__init__(config, writer, self._state)
        self._disk: CheckpointDisk | None = None
        """Checks the checkpoints' disk while the query runs."""

    def run(self) -> Receipt:
        """Start on a checkpoint, and check its disk from now on."""
        if self._disk is None:
            self._disk = CheckpointDisk(self._state.checkpoints.depot, self._config.flow)
            self._disk.start()
        return super().run()

    def hold(self) -> Receipt:
        """Stop the query and the checks of the disk."""
        if self._disk is not None:
            self._disk.stop()
            self._disk = None
        return super().hold()

    def check(self) -> None:
        """Restart a query that has ended; on an older checkpoint if Spark could not load
        this one.
        """
        query = self._query
        if query is not None and not query.isActive:
            query_error = query.exception()
            self._state.failed(self._error or query_error, query_error)
        super().check()

    def tick(self) -> None:
        """Remove checkpoints that no run needs any more, and send what is left in the outbox."""
        self._state.prune()
        self._state.send_rest()

    def internal_state(self, receipt: Receipt) -> bytes:
        """Return as JSON the positions, the checkpoint that the run leaves, and the checkpoint's
        files.
        """
        run = self._state.run
        manifest = None if run is None else self._state.checkpoints.manifest(run)
        content: dict[str, Any] = {"positions": receipt.positions}
        if manifest is not None:
            content |= {"checkpoint": run, "batch": manifest[0], "files": manifest[1]}
        return json.dumps(content).encode()

    def close(self) -> None:
        """Close connections."""
        super().close()
        self._state.close()
