"""The query of a tier that holds state in Spark: sinks take turns, and each run begins on links to a checkpoint (decision record 0016)."""

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from ops.model.incarnation import Receipt
from pipeline.absorbing import UNMATCHED, absorbed, counted, output_mode
from pipeline.driver.checkpoints import Checkpoints
from pipeline.driver.engine import Setting, offsets_option, source
from pipeline.driver.into_sink import QUIET_SECONDS, IntoSink
from pipeline.driver.positions import GoneError, start
from pipeline.driver.streams import Bounds
from pipeline.sinks.ledger import Batch, Last
from pipeline.sinks.sink import Absorbed, Rows
from pipeline.sinks.table import Latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = structlog.get_logger()

VOUCH = 100
"""So many of the ledger's last batches are looked for among checkpoints; Spark keeps a fifth of that (`minBatchesToRetain`)."""


class StateGoneError(Exception):
    """The state is in no checkpoint, and cannot be made again."""


class Changes:
    """The newest row of each key that is not written yet."""

    def __init__(self, sink: Latest) -> None:
        """Begin with none."""
        self._sink = sink
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def take(self, rows: pa.Table) -> None:
        """Put what a batch has changed in the place of what is older."""
        columns = [rows.column(name).to_pylist() for name in self._sink.columns]
        at = [list(self._sink.columns).index(name) for name in self._sink.key]
        for row in zip(*columns, strict=True):
            self._rows[tuple(row[index] for index in at)] = row

    def rows(self) -> Rows:
        """Return them as a sink takes them."""
        columns = list(zip(*self._rows.values(), strict=True)) or [() for _ in self._sink.columns]
        return Rows(dict(zip(self._sink.columns, columns, strict=True)), [], [])


class WithState(IntoSink):
    """Micro-batches through a state into a table of results."""

    def __init__(self, setting: Setting, sink: Latest) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(setting, sink)
        self._latest = sink
        self._checkpoints = Checkpoints(setting.checkpoints)
        self._changes = Changes(sink)
        self._absorbed = Absorbed()
        """By the batches after `_since`."""
        self._since = -1
        """The ledger's batch at whose end the ledger and this state were last the same."""
        self._level: dict[str, int] = {}
        """How far the ledger is known to be at least as far as this state."""
        self._kept: int | None = None
        """The last batch that was written, until Spark has committed it and older checkpoints are removed."""

    def tick(self) -> None:
        """Remove what other runs have left as soon as a batch of this one is vouched for."""
        folder = self._folder
        if folder is not None and self._kept is not None and self._setting.owns() and (folder / "commits" / str(self._kept)).exists():
            self._kept = None
            self._checkpoints.prune(folder)

    def internal_state(self, receipt: Receipt) -> bytes:
        """Name the checkpoint that it leaves, and its files."""
        found = None if self._folder is None else self._checkpoints.manifest(self._folder)
        said: dict[str, Any] = {"positions": receipt.positions}
        if self._folder is not None and found is not None:
            said |= {"checkpoint": self._folder.name, "batch": found[0], "files": found[1]}
        return json.dumps(said).encode()

    def _begin(self, last: Last | None, bounds: Bounds) -> dict[str, int]:
        endings = self._ledger.endings(VOUCH) if last is not None else []
        self._folder, found = self._checkpoints.begin(self._setting.incarnation, endings)
        self._changes, self._absorbed, self._kept = Changes(self._latest), Absorbed(), None
        self._since = -1 if found is None else found.number
        if found is not None:
            known = [dict(found.committed.ends)]
        elif last is not None:
            known = [self._ledger.begins()]
            log.warning("no checkpoint is of a batch in the ledger; the state is made again from the tier's first record on", begins=known)
        else:
            known = []
        try:
            self._level = start(bounds.oldest, bounds.ends, known, [])
        except GoneError as gone:
            message = (
                f"{self._checkpoints.folder} has no checkpoint of any of the last {len(endings)} batches in the ledger, and the records of "
                f"which the state could be made again are no longer there; bring the folder back; or, to count anew from the oldest that "
                f"are, delete the tier's rows in ledger and in its table, and start it again"
            )
            raise StateGoneError(message) from gone
        return self._level

    def rehearse(self) -> None:
        """Nothing: what holds state is planned as a stream, or not at all."""

    def _made(self, begins: dict[str, int], records: int) -> tuple["DataFrame", str]:
        setting, chosen = self._setting, offsets_option(begins)
        read = [
            source(setting, {"startingOffsets": json.dumps({name: chosen[name]}), "maxOffsetsPerTrigger": str(records)}, [name])
            for name in setting.inputs
        ]
        made = absorbed(read, setting.tier)
        return made, output_mode(made)

    def _clear(self) -> None:
        if self._folder is not None and self._folder.parent == self._checkpoints.folder:
            self._folder = None  # the next run begins from it
        super()._clear()

    def _take(self, frame: "DataFrame", number: int) -> None:
        before = self._since
        super()._take(frame, number)
        if self._since != before:
            self._kept = number

    def _put(self, rows: pa.Table, batch: Batch) -> None:
        kept = rows.filter(pc.invert(rows.column(UNMATCHED))) if UNMATCHED in rows.column_names else rows
        self._changes.take(kept)
        self._absorbed += Absorbed(unmatched=len(rows) - len(kept))
        active = self._setting.session.streams.active
        self._absorbed += counted(next(query for query in active if query.name == self._called))
        super()._put(rows, batch)

    def _rest(self, batch: Batch) -> Batch | None:
        """Return what the ledger lacks, once this state has everything that the ledger has."""
        rest = super()._rest(Batch({partition: self._level.get(partition, 0) for partition in batch.ends}, batch.ends))
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
        counts = self._ledger.write(batch, self._changes.rows(), epoch=self._setting.right(), absorbed=taken)
        self._count(counts, [], time.time())
        self._turn, self._done, self._level = True, batch.ends, batch.ends
        self._changes, self._absorbed, self._since = Changes(self._latest), Absorbed(), self._ledger.number
        gap = time.time() - (self._before or 0)
        if self._gap is None and gap < QUIET_SECONDS:
            # after a longer time it was the input that was quiet, or the owner that died
            self._gap = gap
