"""A batch tier's query: all incarnations share one checkpoint, one at a time; it is handed over right after a commit."""

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import structlog

from ops.model.incarnation import Receipt
from pipeline import lineage
from pipeline.driver.checkpoint import Checkpoint
from pipeline.driver.engine import WARM_RECORDS, Engine, Setting, is_warm, offsets_option, recent, source
from pipeline.driver.failure import plainly
from pipeline.driver.restarts import Restarts
from pipeline.routing import outgoing
from pipeline.sinks.archive import Archive
from pipeline.sinks.ledger import CheckpointError, FencedError, Ledger
from pipeline.sinks.quarantine import Quarantine
from pipeline.sinks.sink import Rows, SinkAwayError
from pipeline.sinks.table import Once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

log = structlog.get_logger()

INTERVAL = "2 seconds"
"""Between the begins of two batches: a batch costs much the same however few its records are."""
WARM_BATCHES = 6
HOLD_SECONDS = 30.0
"""How long a stop waits for a commit before it stops in the middle of a batch, which then runs again."""
AWAY_SECONDS = 2.0
"""Between two tries while the sink is away."""


class HeldError(Exception):
    """The batch came after the tier was told to hold; it runs again later."""


class Batch(Engine):
    """Micro-batches, each of them a transaction of the sink."""

    def __init__(self, setting: Setting) -> None:
        """Prepare; nothing runs yet."""
        self._setting = setting
        self._checkpoint = Checkpoint(setting.checkpoints)
        tier = setting.tier
        self._ledger = Ledger(setting.postgres, tier.name, setting.incarnation, tier.sink) if tier.sink is not None else None
        self._archive = (
            Archive(setting.postgres, setting.home, tier.name, tier.sink) if isinstance(tier.sink, Once) and tier.sink.archive else None
        )
        self._quarantine = Quarantine(setting.kafka, tier.name, setting.incarnation)
        self._query: StreamingQuery | None = None
        self._gate = threading.Lock()
        self._held = threading.Event()
        self._error: BaseException | None = None
        self._restarts = Restarts(limit=5, seconds=120.0, first_wait=0.5)
        self._began = -1
        self._oldest: dict[str, int] = {}
        self._before: float | None = None
        self._gap: float | None = None
        self._written = 0
        self._latency: float | None = None

    # -- the life of the query

    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run it in small batches over recent records, on a checkpoint of its own, into what nobody reads."""
        begins, records = recent(self._setting)
        wanted = WARM_BATCHES if records else 0
        folder = tempfile.mkdtemp(prefix=f"sluice-warm-{self._setting.tier.name}-")
        options = {"startingOffsets": json.dumps(offsets_option(begins)), "maxOffsetsPerTrigger": str(WARM_RECORDS)}
        query = self._start(folder, options, cold=True)
        begun, looked = time.monotonic(), Checkpoint(Path(folder))
        while go_on() and query.exception() is None and not is_warm(time.monotonic() - begun, looked.committed() + 1, wanted):
            time.sleep(0.05)
        failed = query.exception()
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
        if failed is not None:
            raise self._error or failed

    def run(self) -> Receipt:
        """Go on from the shared checkpoint."""
        setting = self._setting
        if self._ledger is not None and self._checkpoint.query is None:
            known = self._ledger.query()
            if known is not None:
                message = (
                    f'tier "{setting.tier.name}": its checkpoint {self._checkpoint.folder} is gone, and the ledger knows batches of it; '
                    f"restore the folder, or, to begin again on purpose, delete the tier's row in tier_epochs and its rows in ledger"
                )
                raise CheckpointError(message)
        last = self._ledger.last() if self._ledger is not None else None
        self._before = last[1] if last is not None else None
        self._held.clear()
        self._error = None
        self._began = self._checkpoint.committed()
        if not self._oldest:
            self._oldest = setting.streams.bounds(setting.inputs).oldest
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(setting.tier.max_offsets)}
        self._query = self._start(str(self._checkpoint.folder), options, cold=False)
        positions = self.positions()
        log.info("runs", batch=self._began + 1, begins=positions)
        return Receipt(positions=positions, batch=self._began, at=time.time())

    def hold(self) -> Receipt:
        """Stop right after a commit appears."""
        self._restarts.begun()
        query = self._query
        if query is not None and query.isActive:
            self._wait_for_commit(query)
            query.stop()
        self._query = None
        return Receipt(positions=self.positions(), batch=self._checkpoint.committed(), at=time.time())

    def check(self) -> None:
        """Begin again in place a few times, unless it was fenced or its checkpoint is wrong."""
        query, now = self._query, time.monotonic()
        if query is not None and not query.isActive:
            error = self._error or query.exception() or RuntimeError("the query ended without an error")
            if isinstance(error, FencedError | CheckpointError) or not self._restarts.failed(now):
                raise error
            self._query = None
            log.warning("the query failed and is begun again in place", error=plainly(error))
        if self._restarts.overdue(now) >= 0:
            self._restarts.begun()
            self.run()

    def caught_up(self) -> bool:
        """Tell whether a first batch has committed, or there is nothing to do."""
        if self._query is None or not self._query.isActive:
            return False
        if self._checkpoint.committed() > self._began:
            return True
        status = self._query.status
        waits = str(status["message"]).startswith("Waiting") and not status["isDataAvailable"]
        return waits and self._checkpoint.planned() <= self._began

    def gap(self) -> float | None:
        """From the tier's last batch to the first one here."""
        return self._gap

    def positions(self) -> dict[str, int]:
        """Where the last committed batch ends."""
        return {**self._oldest, **self._checkpoint.offsets(self._checkpoint.committed())}

    def latest(self) -> tuple[int, float | None]:
        """Since this process began, and for the last batch."""
        return self._written, self._latency

    def tick(self) -> None:
        """Do what is due between batches."""
        if self._archive is not None and self._query is not None and self._archive.due():
            self._archive.write()

    def rest(self) -> None:
        """Write what is not archived yet."""
        if self._archive is not None:
            self._archive.write()

    def close(self) -> None:
        """Write what is not archived yet, and give connections back."""
        self.rest()
        if self._archive is not None:
            self._archive.close()
        if self._ledger is not None:
            self._ledger.close()

    def _wait_for_commit(self, query: "StreamingQuery") -> None:
        before = self._checkpoint.committed()
        deadline = time.monotonic() + HOLD_SECONDS
        while query.isActive and time.monotonic() < deadline:
            committed = self._checkpoint.committed()
            if committed > before or (self._checkpoint.planned() <= committed and not query.status["isTriggerActive"]):
                break
            time.sleep(0.003)
        self._held.set()
        with self._gate:  # a transaction that has begun is let through
            pass

    # -- the query itself

    def _start(self, folder: str, options: dict[str, str], *, cold: bool) -> "StreamingQuery":
        setting, tier = self._setting, self._setting.tier
        made = lineage.transformed(source(setting, options), tier)
        name = f"{tier.name} {setting.incarnation}{' warm-up' if cold else ''}"
        if tier.sink is None:
            partitions = {topic: setting.streams.partitions(topic) for topic in setting.outputs}
            suffix = lineage.WARM_UP if cold else ""
            written = outgoing(made, tier, f"{tier.name}/{setting.incarnation}", partitions, suffix=suffix)
            writer = written.writeStream.format("kafka").option("kafka.bootstrap.servers", setting.kafka)
        else:
            writer = lineage.collected(made, tier).writeStream.foreachBatch(self._discard if cold else self._write)
        writer = writer.queryName(name).outputMode("append").option("checkpointLocation", folder)
        return writer.trigger(processingTime="0 seconds" if cold else INTERVAL).start()

    def _discard(self, rows: "DataFrame", _number: int) -> None:
        self._quarantine.split(rows.toArrow())

    def _write(self, frame: "DataFrame", number: int) -> None:
        try:
            rows = frame.toArrow()
            good, bad = self._quarantine.split(rows)
            columns = {name: good.column(name).to_pylist() for name in good.column_names}
            origins, paths, arrived = columns.pop(lineage.ORIGIN), columns.pop(lineage.PATH), columns.pop(lineage.ARRIVED)
            self._written += self._transact(number, Rows(columns, origins, paths), bad)
            now = time.time()
            if arrived:
                self._latency = now * 1000 - statistics.median(arrived)
            if arrived and self._gap is None and self._before is not None:
                # without input there is no output either: that is no gap
                self._gap = now - max(self._before, min(arrived) / 1000)
        except BaseException as error:
            self._error = error
            raise

    def _transact(self, number: int, rows: Rows, bad: list[dict[str, object]]) -> int:
        ledger = self._ledger
        if ledger is None:
            return 0
        batch = self._checkpoint.batch(number, self._oldest)
        while True:
            with self._gate:
                if self._held.is_set():
                    message = f"batch {number} waits for whoever goes on"
                    raise HeldError(message)
                try:
                    self._quarantine.put(bad)
                    written = ledger.write(batch, rows, quarantined=len(bad))
                    break
                except (psycopg.OperationalError, SinkAwayError) as error:
                    log.warning("the sink is away; the batch is tried again", batch=number, error=plainly(error))
            self._held.wait(AWAY_SECONDS)
        return written
