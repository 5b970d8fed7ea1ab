"""The query of a tier with a sink: micro-batches, each a transaction, written by whoever's turn it is (decision record 0011)."""

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import structlog

from sluice.api.sink import Sink, SinkAwayError
from sluice.driver.control.restarts import Restarts
from sluice.driver.control.wait_for_services import bear, run_again
from sluice.driver.counters import Commits, raised
from sluice.driver.engine.contract import Control, Engine
from sluice.driver.engine.intake import portion
from sluice.driver.engine.offsets import between, offsets_option, source
from sluice.driver.engine.settings import INTERVAL, EngineConfig
from sluice.driver.engine.sink_rows import refuse_namesakes, sink_rows
from sluice.driver.engine.warm_up import ENOUGH_RECORDS, MOST_SECONDS, level, recent
from sluice.driver.spark.queries import is_idle, plan
from sluice.driver.state.offset_log import ends
from sluice.failures import error_text
from sluice.kafka.positions import refuse_shorter, start
from sluice.kafka.reader import Bounds, StreamError
from sluice.kafka.stream_identity import Watch, of_positions, refuse_changed
from sluice.kafka.truncation import Logs, ReadAgainError, cut_error
from sluice.postgres import UNAVAILABLE
from sluice.records import lineage
from sluice.sinks.archive import Archive
from sluice.sinks.batches import Batch, LastBatch, LedgerMovedError
from sluice.sinks.ledger import Counts, FencedError, GivenUpError, Ledger
from sluice.sinks.quarantine import Quarantine
from sluice.sinks.refused import REFUSED, without_refused
from sluice.sinks.table import Once
from sluice_ops.model.incarnation import Receipt, Repartitioned
from sluice_ops.model.tier import Delivery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

log = structlog.get_logger()

BEHIND_SECONDS = 0.1
"""Who waits for its turn begins its batches so much later than the owner, so that they reach further than what the owner writes."""
LOOK_SECONDS = 0.02
"""Between two looks into the ledger while it waits for its turn."""
JUST_SECONDS = 0.3
"""It takes over so soon after a commit of the owner's, so that hardly any time is without one."""
QUIET_SECONDS = 2 * INTERVAL
"""An owner that has written nothing for this long leaves no gap behind."""
PATIENCE_SECONDS = 20.0
AWAY_SECONDS = 2.0
"""Between two tries of a batch while the sink is away."""
TOO_LARGE = ("spark.driver.maxResultSize", "OutOfMemoryError", "exited with code 52")
"""Spark's words for a batch that is larger than the driver may collect, or than an executor can hold."""
SMALLER = 4
"""Batches are so many times smaller from then on, for as long as this incarnation runs."""


class HeldError(Exception):
    """The batch came after the tier was told to hold; whoever goes on reads it again."""


def may_take_over(age: float, waited: float) -> bool:
    """Tell whether now is the time, so long after the owner's last commit, having waited so long for a better one."""
    return age <= JUST_SECONDS or age >= QUIET_SECONDS or waited >= PATIENCE_SECONDS


def is_too_large(error: BaseException) -> bool:
    """Tell whether a batch has failed because it was too large to be held."""
    said = error_text(error)
    return any(sign in said for sign in TOO_LARGE)


class SinkEngine(Engine):
    """Micro-batches into a table or a service."""

    def __init__(self, config: EngineConfig, control: Control, sink: Sink) -> None:
        """Prepare; nothing runs yet."""
        self._config, self._control, self._sink, name = config, control, sink, config.tier.name
        self._commits = config.flow.commits = Commits()
        self._called = f"{name} {config.incarnation}"
        """The query's name."""
        self._held = threading.Event()
        once = config.tier.delivery is Delivery.AT_MOST_ONCE
        self._ledger = Ledger(
            config.postgres, name, config.incarnation, sink, at_most_once=once, halt=self._held
        )
        self._archive = (
            Archive(config.postgres, config.home, name, sink)
            if isinstance(sink, Once) and sink.archive
            else None
        )
        self._quarantine = Quarantine(config.kafka, name, config.incarnation)
        self._query: StreamingQuery | None = None
        self._folder: Path | None = None
        """Where the query that runs has its checkpoint."""
        self._gate = threading.Lock()
        self._error: BaseException | None = None
        self._restarts = Restarts(limit=5, seconds=120.0, first_wait=0.5)
        self._most = config.tier.max_offsets
        """Records of a batch."""
        self._read: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._watch = Watch(config.identities)
        self._logs = Logs()
        """What the run reads."""
        self._turn = False
        self._waits_since: float | None = None
        self._before: float | None = None
        self._gap: float | None = None
        self._doubt = False
        """Records of the last batch may be lost: until one is taken again, one at a time is risked."""
        self._repartitioned: Repartitioned | None = None
        """That the state of the run was spread anew as it began."""

    # -- the life of the query

    def rehearse(self) -> None:
        """Plan what a batch collects."""
        tier = self._config.tier
        plan(lineage.collected(lineage.transformed(source(self._config, {}, stream=False), tier), tier))

    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run it in small batches over recent records, into what nobody reads."""
        begins, _ = recent(self._config)
        took: list[float] = []

        def discard(frame: "DataFrame", _number: int) -> None:
            begun = time.monotonic()
            frame.toArrow()
            took.append(time.monotonic() - begun)

        self._folder = self._scratch()
        query = self._start(
            begins, discard, records=ENOUGH_RECORDS // 4
        )  # of one partition too it takes four batches to tell
        until = time.monotonic() + MOST_SECONDS
        while (
            go_on()
            and query.exception() is None
            and not level(took)
            and not is_idle(query)
            and time.monotonic() < until
        ):
            time.sleep(0.05)
        failed = query.exception()
        query.stop()
        self._clear()
        log.info("warmed", batches=[round(seconds, 2) for seconds in took])
        if failed is not None and not is_too_large(failed):
            raise failed

    def run(self) -> Receipt:
        """Start from where the ledger ends."""
        config = self._config
        last = self._ledger.last()
        config.streams.renew()
        self._logs = self._known_logs(last)
        bounds = config.streams.bounds(config.inputs)
        self._clear()
        begins = self._begin(last, bounds)
        if last is not None:
            refuse_shorter(
                last.ends, bounds.ends, f"when its records may be taken for new, {self._anew(last)}"
            )
        self._held.clear()
        config.flow.away = None
        self._error, self._turn, self._waits_since = None, False, None
        self._read, self._done = begins, begins
        self._query = self._start(begins, self._take, records=self._most)
        log.info("runs", begins=begins)
        number = None if last is None else last.number
        logs, spread = self._logs, self._repartitioned
        return Receipt(
            positions=begins,
            batch=number,
            repartitioned=spread,
            streams=logs.streams,
            epochs=logs.epochs,
            at=time.time(),
        )

    def hold(self) -> Receipt:
        """Let a transaction through that has begun, and stop."""
        self._restarts.begun()
        self._held.set()
        with self._gate:
            pass
        if self._query is not None:
            self._query.stop()
            self._query = None
        last = self._ledger.number if self._turn else None
        return Receipt(
            positions=self.positions(),
            batch=last,
            streams=self._logs.streams,
            epochs=self._logs.epochs,
            at=time.time(),
        )

    def check(self) -> None:
        """Begin again in place a few times, unless another has the better right."""
        query, now = self._query, time.monotonic()
        if query is not None and not query.isActive and isinstance(self._error, ReadAgainError):
            log.info("the query is begun again", why=str(self._error))
            self._query = None
            self._restarts.put_off(now, 0.0)
        elif query is not None and not query.isActive:
            error = self._error or query.exception() or RuntimeError("the query ended without an error")
            bear(error, self._restarts, self._config.flow, give_up=isinstance(error, FencedError))
            self._query = None
        if self._restarts.overdue(now) >= 0:
            run_again(self.run, self._restarts, self._config.flow)

    def caught_up(self) -> bool:
        """Tell whether it has written a first batch, or there is nothing to write."""
        return self._query is not None and self._query.isActive and (self._turn or is_idle(self._query))

    def gap(self) -> float | None:
        """From the tier's last batch to the first one here."""
        return self._gap

    def positions(self) -> dict[str, int]:
        """Where the last batch ends that was written here, or by another before one that was to be."""
        return dict(self._done)

    def last_batch(self) -> "StreamingQueryProgress | None":
        """Ask Spark, while there is a query."""
        query = self._query
        return None if query is None else query.lastProgress

    def tick(self) -> None:
        """Do what is due between batches."""
        if self._archive is not None and self._query is not None and self._archive.due():
            self._archive.write()

    def rest(self) -> None:
        """Archive what came last."""
        if self._archive is not None:
            self._archive.write()

    def close(self) -> None:
        """Archive what came last, and give connections back."""
        self.rest()
        if self._archive is not None:
            self._archive.close()
        self._ledger.close()
        self._clear()

    # -- the query itself

    def _begin(self, last: LastBatch | None, bounds: Bounds) -> dict[str, int]:
        """Make a run's checkpoint, and return where the run begins."""
        self._folder = self._scratch()
        return start(bounds.oldest, bounds.ends, [] if last is None else [last.ends], [])

    def _known_logs(self, last: LastBatch | None) -> Logs:
        """Return which logs the inputs are; refuse others than those of the ledger's positions, and one that was cut back below them."""
        now = self._watch.now(self._config.streams.places(self._config.inputs))
        if last is None or not now.streams:
            return now
        known = of_positions(last.ends, last.streams)
        refuse_changed(known, now.streams, self._other_stream(last))
        if found := self._watch.cut(last.ends, last.epochs, now.epochs):
            raise cut_error(last.ends, found, self._other_stream(last))
        if new := {
            name: now.streams[name] for name in of_positions(last.ends, now.streams) if name not in known
        }:
            log.info(
                "the ids of its inputs were not known; its positions are taken for theirs from now on",
                streams=new,
            )
            self._ledger.adopt_streams(new)
        return now

    def _same_logs(self, batch: Batch) -> Batch:
        """Refuse to write what was read just now, unless it is of the logs that the run began with; return it with what it belongs to."""
        now = self._watch.now(batch.ends)
        refuse_changed(
            {name: [identity] for name, identity in self._logs.streams.items()},
            now.streams,
            "it is begun again",
        )
        if elected := sorted(
            place for place, epoch in now.epochs.items() if self._logs.epochs.get(place, epoch) != epoch
        ):
            raise ReadAgainError(elected)
        self._logs = self._logs.on(now)
        return replace(batch, streams=now.streams, epochs=now.epochs)

    def _other_stream(self, last: LastBatch) -> str:
        """Say how a person has the tier begin with the oldest records of a stream that was made anew."""
        if self._config.tier.inputs[0].columns is None:
            return self._anew(last)
        return f"`sluice skip {self._config.tier.name}` has it go on with the oldest records that there are"

    def _anew(self, last: LastBatch) -> str:
        """Say how a person has the tier begin with the oldest records that there are; the numbers of its batches go on."""
        tier = self._config.tier
        outside = tier.inputs[0].columns is None
        names = (
            f" (and empty {self._sink.name} and the tier's rows in marks: new records have the names of old ones)"
            if outside
            else ""
        )
        said = f"update ledger set ends = '{{}}' where tier = '{tier.name}' and batch = {last.number}"  # noqa: S608 — for a person to run
        return f"{said}{names}; then start it again"

    def _made(self, begins: dict[str, int], records: int) -> tuple["DataFrame", str]:
        """Return what the query puts out, and its output mode."""
        options = {
            "startingOffsets": json.dumps(offsets_option(begins)),
            "maxOffsetsPerTrigger": str(records),
        }
        tier = self._config.tier
        return lineage.collected(lineage.transformed(source(self._config, options), tier), tier), "append"

    def _again(self, batch: Batch, whole: Sequence[str]) -> pa.Table:
        """Return what the query has put out for a batch, the rows from some places with all of their lineage."""
        tier, records = self._config.tier, between(self._config, batch.begins, batch.ends)
        return lineage.collected(lineage.transformed(records, tier), tier, whole).toArrow()

    def _start(
        self, begins: dict[str, int], take: "Callable[[DataFrame, int], None]", *, records: int
    ) -> "StreamingQuery":
        made, mode = self._made(begins, records)
        writer = made.writeStream.foreachBatch(take).queryName(self._called).outputMode(mode)
        return (
            writer.option("checkpointLocation", self._location()).trigger(processingTime="0 seconds").start()
        )

    def _scratch(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"sluice-{self._config.tier.name}-"))

    def _location(self) -> str:
        """Return where the query that begins has its checkpoint."""
        return str(self._folder)

    def _reached(self, number: int) -> dict[str, int]:
        """Return where a batch of the query ends."""
        assert self._folder is not None  # noqa: S101 — a query that runs has one
        return ends(self._folder, number)

    def _clear(self) -> None:
        """Drop a checkpoint that is of no use to any other."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _take(self, frame: "DataFrame", number: int) -> None:
        try:
            with self._config.flow.phases.labels("collect").time():
                rows = frame.toArrow()
            batch = self._batch(number)
            self._put(rows, batch)
            self._read = batch.ends
        except BaseException as error:
            self._error = error
            if is_too_large(error):
                self._most = max(1, self._batch(number).records // SMALLER)
                log.warning(
                    "a batch was too large for the memory of driver or slot; batches are smaller now",
                    records=self._most,
                )
            raise
        if batch.records < self._most:
            behind = 0.0 if self._is_mine() else BEHIND_SECONDS
            self._held.wait(INTERVAL - (time.time() - behind) % INTERVAL)

    def _batch(self, number: int) -> Batch:
        reached = self._reached(number)
        return Batch({partition: self._read.get(partition, 0) for partition in reached}, reached)

    def _put(self, rows: pa.Table, batch: Batch) -> None:
        """Write what is left of a batch when its turn has come; nothing is left once somebody else has written all of it."""
        while True:
            try:
                with self._config.flow.phases.labels("turn").time():
                    rest = self._rest(batch)
                part = (
                    rest
                    if rest is None or not self._doubt
                    else Batch(rest.begins, portion(rest.begins, rest.ends, 1))
                )
                if part is not None:
                    part = self._same_logs(part)
                    with self._gate:
                        self._refuse_when_held()
                        with self._config.flow.phases.labels("write").time():
                            self._write(rows if part == batch else self._within(rows, part), part)
            except GivenUpError as given_up:
                self._commits.lost += given_up.lost
                log.warning("records may be lost", why=str(given_up))
            except LedgerMovedError as moved:
                log.info("another has written meanwhile", moved=str(moved))
            except psycopg.errors.ProgramLimitExceeded:
                raise  # it would be refused for ever
            except (*UNAVAILABLE, SinkAwayError, StreamError) as error:
                self._commits.retries += 1
                wait = max(AWAY_SECONDS, error.wait if isinstance(error, SinkAwayError) else 0.0)
                away = self._config.flow.away = error_text(error)
                log.warning(
                    "what the batch needs is away; it is tried again",
                    begins=batch.begins,
                    error=away,
                    seconds=wait,
                )
                self._held.wait(wait)
            else:
                self._config.flow.away = None
                if self._doubt:
                    self._held.wait(AWAY_SECONDS)
                if part == rest:
                    return

    def _rest(self, batch: Batch) -> Batch | None:
        """Wait for the turn, and return what is left of a batch then."""
        while True:
            self._refuse_when_held()
            last = self._ledger.last()
            if last is None:
                return batch
            rest = batch.rest(last.ends)
            if rest is None:
                self._done = dict(last.ends)
                return None
            if not self._turn:
                self._before = last.at
            self._waits_since = self._waits_since or time.monotonic()
            if self._is_mine() or may_take_over(last.age, time.monotonic() - self._waits_since):
                return rest
            self._held.wait(LOOK_SECONDS)

    def _is_mine(self) -> bool:
        return self._turn or self._control.owns

    def _refuse_when_held(self) -> None:
        if self._held.is_set():
            message = "the batch waits for whoever goes on"
            raise HeldError(message)

    def _write(self, rows: pa.Table, batch: Batch) -> None:
        good, bad = self._quarantine.split(rows)
        refuse_namesakes(good)
        found, arrived = sink_rows(good)
        put = partial(self._quarantine.put, bad)
        try:
            counts = self._ledger.write(
                batch, found, epoch=self._control.epoch, quarantined=len(bad), put_quarantined=put
            )
        except REFUSED as error:
            log.warning(
                "PostgreSQL refuses a batch; what it does not take is set aside", error=error_text(error)
            )
            self._write(without_refused(self._ledger, good, found, partial(self._again, batch)), batch)
            return
        self._turn, self._done, now = True, batch.ends, time.time()
        self._count(counts, arrived, now)
        if arrived and self._gap is None and self._before is not None:
            # without input there is no output either: that is no gap
            self._gap = now - max(self._before, min(arrived) / 1000)

    def _count(self, counts: Counts, arrived: list[int], now: float) -> None:
        flow, commits = self._config.flow, self._commits
        flow.records_out = raised(flow.records_out, {self._sink.name: counts.written})
        flow.quarantined += counts.quarantined + counts.refused
        commits.filtered += counts.filtered
        commits.replays += counts.replays
        commits.late += counts.late
        commits.lost += counts.lost
        self._doubt = counts.lost > 0
        commits.marks, flow.last_out = self._ledger.marks, now
        if arrived:
            flow.latency_ms = now * 1000 - statistics.median(arrived)
            flow.waits = flow.waits.plus(now - each / 1000 for each in arrived)

    @staticmethod
    def _within(rows: pa.Table, batch: Batch) -> pa.Table:
        """Return the rows that were made of records of a part of a batch."""
        keep = []
        for place in rows.column(lineage.FROM).to_pylist():
            partition, _, offset = place.rpartition(":")
            keep.append(batch.begins[partition] <= int(offset) < batch.ends[partition])
        return rows.filter(pa.array(keep, pa.bool_()))
