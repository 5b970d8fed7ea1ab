"""The query of a tier that holds state in Spark: sinks take turns, and each run begins on files of a checkpoint (decision record 0016)."""

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from confluent_kafka import KafkaException

from sluice.api.sink import Absorbed, Rows, Unfit
from sluice.driver.engine.contract import Control
from sluice.driver.engine.offsets import offsets_option, source
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.sink import QUIET_SECONDS, SinkEngine
from sluice.driver.state.checkpoint_disk import CheckpointDisk, require_room
from sluice.driver.state.checkpoint_selection import Vouched
from sluice.driver.state.checkpoint_store import Depot
from sluice.driver.state.checkpoints import Checkpoints, Code
from sluice.driver.state.repartition import repartition
from sluice.failures import is_disk_full
from sluice.kafka.positions import RecordsGoneError, start
from sluice.kafka.reader import Bounds, StreamError, Streams, arrived
from sluice.records.state_inputs import (
    UNMATCHED,
    absorbed_counts,
    hold_watermark,
    output_mode,
    transformed_with_state,
)
from sluice.records.watermark import Watermark
from sluice.sinks.batches import Batch, LastBatch
from sluice.sinks.table import Latest
from sluice_ops.model.incarnation import Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger()

VOUCH = 100
"""So many of the ledger's last batches are looked for among checkpoints; Spark keeps a fifth of that (`minBatchesToRetain`)."""
UNREADABLE = ("CANNOT_LOAD_STATE_STORE", "Checksum error", "Incomplete log file")
"""What Spark says of a checkpoint whose state, or log, it cannot read."""
LATE_SECONDS = 60.0
"""Between two warnings that records came too late."""
AHEAD = 500
"""So many of the records that wait are looked at after each batch, of all partitions together."""
TRIES = 3
"""So many checkpoints that cannot be loaded are enough: what is damaged is a part of all of them, and the state is made again."""


class StateGoneError(Exception):
    """The state is in no checkpoint, and cannot be made again."""


def damaged(error: BaseException | None) -> bool:
    """Tell whether a query ended because Spark could not read its checkpoint."""
    return error is not None and any(words in str(error) for words in UNREADABLE)


def older(endings: Sequence[LastBatch], damaged: Sequence[int]) -> Sequence[LastBatch]:
    """Return the batches in the ledger whose checkpoints may be tried: those before one that could not be loaded; in the end none. Pure."""
    if len(damaged) >= TRIES:
        return ()
    return [each for each in endings if each.number < min(damaged, default=each.number + 1)]


def values(column: pa.ChunkedArray) -> list[Any]:
    """Return what is in a column; a value that Python has no word for is `Unfit`, and does not stop the tier."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(each) for each in column]


def _value(each: pa.Scalar) -> Any:
    try:
        return each.as_py()
    except (ValueError, OverflowError) as error:
        return Unfit(f"{_raw(each)} is no value that its table takes: {error}")


def _raw(each: pa.Scalar) -> str:
    """Tell it from others all the same: it may be a key."""
    try:
        return str(each.cast(pa.string()).as_py())
    except UnicodeDecodeError:
        return str(each.cast(pa.binary()).as_py().decode(errors="backslashreplace"))
    except pa.ArrowException:
        return "what is in it"


class Changes:
    """The newest row of each key that is not written yet."""

    def __init__(self, sink: Latest) -> None:
        """Begin with none."""
        self._sink = sink
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def take(self, rows: pa.Table) -> None:
        """Put what a batch has changed in the place of what is older."""
        columns = [values(rows.column(name)) for name in self._sink.columns]
        at = [list(self._sink.columns).index(name) for name in self._sink.key]
        for row in zip(*columns, strict=True):
            self._rows[tuple(row[index] for index in at)] = row

    def rows(self) -> Rows:
        """Return them as a sink takes them."""
        columns = list(zip(*self._rows.values(), strict=True)) or [() for _ in self._sink.columns]
        return Rows(dict(zip(self._sink.columns, columns, strict=True)), [], [])


class StatefulEngine(SinkEngine):
    """Micro-batches through a state into a table of results."""

    def __init__(self, config: EngineConfig, control: Control, sink: Latest, depot: Depot) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(config, control, sink)
        self._latest = sink
        self._checkpoints = Checkpoints(depot, Code(config.release, config.holds))
        self._disk: CheckpointDisk | None = None
        """Looked at while the query runs."""
        self._run: str | None = None
        """The folder of the checkpoint of the query that runs; a warm-up's is elsewhere."""
        self._changes = Changes(sink)
        self._watermark = Watermark()
        self._ahead = Streams(config.kafka)
        """Looks at what waits; used by the query's own thread alone."""
        self._absorbed = Absorbed()
        """By the batches after `_since`."""
        self._since = -1
        """The ledger's batch at whose end the ledger and this state were last the same."""
        self._level: dict[str, int] = {}
        """How far the ledger is known to be at least as far as this state."""
        self._kept: int | None = None
        """The first batch that was written, until Spark has committed it and older checkpoints are removed."""
        self._damaged: list[int] = []
        """The ledger's batches whose checkpoints Spark could not load, since one was loaded."""
        self._loaded: int | None = None
        """The ledger's batch whose checkpoint the run began from."""
        self._warned = -LATE_SECONDS
        """When it was said last that records came too late. Monotonic clock."""
        self._pruned = False
        self._others: int | None = None
        """The ledger's batch after which what other code has made is not needed: nobody would begin from it any more."""

    def check(self) -> None:
        """Begin again in place as others do; on an older checkpoint where Spark could not load this one."""
        query = self._query
        if query is not None and not query.isActive:
            if self._loaded is not None and damaged(query.exception()):
                self._pass_over(self._loaded)
            error = self._error or query.exception()
            if error is not None and is_disk_full(error) and self._run is not None and not self._turn:
                self._checkpoints.depot.remove(
                    self._run
                )  # what it has begun to write is in the way of the next run
        super().check()

    def run(self) -> Receipt:
        """Look at the disk for as long as the query is to run."""
        if self._disk is None:
            self._disk = CheckpointDisk(self._checkpoints.depot, self._config.flow)
            self._disk.start()
        return super().run()

    def hold(self) -> Receipt:
        """Look at the disk no more."""
        if self._disk is not None:
            self._disk.stop()
            self._disk = None
        return super().hold()

    def tick(self) -> None:
        """Remove what other runs have left as soon as a batch of this one is vouched for."""
        run, kept = self._run, self._kept
        if (
            run is not None
            and kept is not None
            and self._control.owns
            and self._checkpoints.committed(run, kept)
        ):
            self._kept, self._pruned, self._others = None, True, self._ledger.number + VOUCH
            self._checkpoints.prune(run, others=False)
        if run is not None and self._others is not None and self._ledger.number >= self._others:
            self._others = None
            self._checkpoints.prune(run, others=True)

    def internal_state(self, receipt: Receipt) -> bytes:
        """Name the checkpoint that it leaves, and its files."""
        found = None if self._run is None else self._checkpoints.manifest(self._run)
        said: dict[str, Any] = {"positions": receipt.positions}
        if found is not None:
            said |= {"checkpoint": self._run, "batch": found[0], "files": found[1]}
        return json.dumps(said).encode()

    def _begin(self, last: LastBatch | None, bounds: Bounds) -> dict[str, int]:
        config = self._config
        require_room(self._checkpoints.depot)
        endings = (
            []
            if last is None
            else [each for each in self._ledger.last_batches(VOUCH) if each.is_followed(bounds.oldest)]
        )
        for key, value in self._checkpoints.depot.query.items():
            config.session.conf.set(key, value)
        found = self._take_up(endings)
        self._changes, self._absorbed, self._kept, self._pruned, self._others = (
            Changes(self._latest),
            Absorbed(),
            None,
            False,
            None,
        )
        self._watermark = Watermark()
        self._loaded = None if found is None else found.number
        self._since = -1 if found is None else found.number
        if found is not None:
            known = [dict(found.committed.ends)]
        elif last is not None:
            known = [self._ledger.begins()]
            log.warning(
                "no checkpoint is of a batch in the ledger; the state is made again from the tier's first record on",
                begins=known,
            )
        else:
            known = []
        try:
            self._level = start(bounds.oldest, bounds.ends, known, [])
        except RecordsGoneError as gone:
            message = (
                f"{self._checkpoints.depot} has no {'whole ' if self._damaged else ''}checkpoint of any of the last {VOUCH} batches in the "
                f"ledger that the tier could go on from, and the records of which the state could be made again are no longer there; "
                f"bring it back; or, to count anew from the oldest that are, delete the tier's rows in ledger and in its table, and start "
                f"it again"
            )
            raise StateGoneError(message) from gone
        return self._level

    def _anew(self, last: LastBatch) -> str:
        del last
        return f"delete the tier's rows in ledger and in {self._latest.name}, and start it again"

    def _other_stream(self, last: LastBatch) -> str:
        return self._anew(last)

    def rehearse(self) -> None:
        """Nothing: what holds state is planned as a stream, or not at all."""

    def _take_up(self, endings: Sequence[LastBatch]) -> Vouched | None:
        """Make the run's checkpoint of the newest one that can be loaded, in as many partitions as it is to have."""
        config, self._repartitioned = self._config, None
        while True:
            self._run, found = self._checkpoints.begin(config.incarnation, older(endings, self._damaged))
            if found is None or found.committed.partitions == config.partitions:
                return found
            try:
                self._run, self._repartitioned = repartition(
                    config.session,
                    self._checkpoints,
                    config.incarnation,
                    self._run,
                    found.committed,
                    config.partitions,
                )
            except Exception as error:
                if not damaged(error):
                    raise
                self._pass_over(found.number)
            else:
                return found

    def _pass_over(self, number: int) -> None:
        self._damaged.append(number)
        log.warning("the checkpoint is damaged; an older one is taken", run=self._run, ledger=number)

    def _made(self, begins: dict[str, int], records: int) -> tuple["DataFrame", str]:
        config, chosen = self._config, offsets_option(begins)
        read = [
            source(
                config,
                {"startingOffsets": json.dumps({name: chosen[name]}), "maxOffsetsPerTrigger": str(records)},
                [name],
            )
            for name in config.inputs
        ]
        made = transformed_with_state(read, config.tier)
        return made, output_mode(made)

    def _location(self) -> str:
        return super()._location() if self._run is None else self._checkpoints.depot.url(self._run)

    def _reached(self, number: int) -> dict[str, int]:
        return super()._reached(number) if self._run is None else self._checkpoints.ends(self._run, number)

    def close(self) -> None:
        """Give connections back."""
        super().close()
        self._ahead.close()

    def _clear(self) -> None:
        self._run = None  # the next run begins from it
        super()._clear()

    def _take(self, frame: "DataFrame", number: int) -> None:
        before = self._since
        super()._take(frame, number)
        if self._since != before:
            self._damaged = []
            if not self._pruned and self._kept is None:
                self._kept = number

    def _put(self, rows: pa.Table, batch: Batch) -> None:
        kept = rows.filter(pc.invert(rows.column(UNMATCHED))) if UNMATCHED in rows.column_names else rows
        self._changes.take(kept)
        self._absorbed += Absorbed(unmatched=len(rows) - len(kept))
        active = self._config.session.streams.active
        query = next(query for query in active if query.name == self._called)
        self._absorbed += absorbed_counts(query)
        super()._put(rows, batch)
        with self._config.flow.phases.labels("watermark").time():
            hold_watermark(query, self._watermark, self._waiting(batch.ends))

    def _waiting(self, ends: dict[str, int]) -> list[int] | None:
        """Return when the next records of each partition arrived that wait behind a batch; None where Kafka does not say."""
        outside = {stream.name for stream in self._config.tier.inputs if stream.columns is None}
        try:
            ahead = self._ahead.next_records(ends, max(1, AHEAD // len(ends)))
            return [arrived(each, outside=each.topic() in outside) for each in ahead]
        except (StreamError, KafkaException) as error:
            log.warning(
                "Kafka does not say which records wait; the watermark stays where it is", error=str(error)
            )
            return None

    def _rest(self, batch: Batch) -> Batch | None:
        """Return what the ledger lacks, once this state has everything that the ledger has."""
        rest = super()._rest(
            Batch({partition: self._level.get(partition, 0) for partition in batch.ends}, batch.ends)
        )
        if rest is None:
            self._level = batch.ends
        elif not batch.reaches(rest.begins):
            return None
        return rest

    @staticmethod
    def _within(rows: pa.Table, batch: Batch) -> pa.Table:
        """A row is the state as of the batch's end: none is cut."""
        del batch
        return rows

    def _write(self, rows: pa.Table, batch: Batch) -> None:
        del rows  # they are among the changes
        taken = self._absorbed - self._ledger.absorbed(self._since)
        counts = self._ledger.write(batch, self._changes.rows(), epoch=self._control.epoch, absorbed=taken)
        self._count(counts, [], time.time())
        if counts.late > 0 and time.monotonic() >= self._warned + LATE_SECONDS:
            self._warned = time.monotonic()
            log.warning(
                "records came too late for the state and are in none of its results; look for a sender that was away or whose clock is "
                "wrong, or raise State.lateness",
                batch=self._ledger.number,
                late=counts.late,
            )
        self._turn, self._done, self._level = True, batch.ends, batch.ends
        self._changes, self._absorbed, self._since = Changes(self._latest), Absorbed(), self._ledger.number
        gap = time.time() - (self._before or 0)
        if self._gap is None and gap < QUIET_SECONDS:
            # after a longer time it was the input that was quiet, or the owner that died
            self._gap = gap
