"""Writes the batches of a tier with a sink, each in one transaction, when the incarnation has its
turn (decision 11).

The owner and incarnations that are about to take over read the same records. The ledger decides:
each of them writes only the part of its batch that the ledger lacks.
"""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import psycopg
import pyarrow as pa
import structlog

from sluice.api.declarations import LONGEST_INTERVAL
from sluice.api.sink import Sink, SinkAwayError
from sluice.driver.counters import Commits, raised, slowest_in_hundred
from sluice.driver.engine.contract import Control
from sluice.driver.engine.intake import portion
from sluice.driver.engine.settings import EngineConfig
from sluice.failures import error_text
from sluice.kafka.reader import StreamError
from sluice.kafka.stream_identity import Watch, of_positions, refuse_changed
from sluice.kafka.truncation import Logs, ReadAgainError, cut_error
from sluice.postgres import UNAVAILABLE
from sluice.sinks.batches import Batch, LastBatch, LedgerMovedError
from sluice.sinks.ledger import Counts, GivenUpError, Ledger
from sluice_ops.model.tier import Delivery

log = structlog.get_logger()

BEHIND_SECONDS = 0.1
"""An incarnation that waits for its turn starts its batches later than the owner by this. So its
batches reach further than the owner's."""
LOOK_SECONDS = 0.02
"""Time between two looks into the ledger while it waits for its turn."""
JUST_SECONDS = 0.3
"""The best moment to take over: at most this long after the owner's last commit, so that the gap is
short.
"""
QUIET_SECONDS = 2 * LONGEST_INTERVAL
"""After this long without a commit of the owner, a takeover leaves no gap of its own."""
PATIENCE_SECONDS = 20.0
"""The longest wait for a better moment to take over."""
AWAY_SECONDS = 2.0
"""Time between two tries of a batch while the sink does not answer."""


class HeldError(Exception):
    """The batch came after the tier was told to hold; the next run reads it again."""


@dataclass(frozen=True)
class Stored:
    """What became of the rows of a batch."""

    counts: Counts
    at: float
    """When the transaction was committed. Unit: epoch seconds."""
    arrived: list[int]
    """When each row's record arrived in the pipeline; empty for a tier with state.

    Unit: epoch ms.
    """
    gap: float | None
    """The time without output before this batch, if another incarnation wrote the batch before.

    Unit: seconds.
    """


class BatchTarget(Protocol):
    """How rows of a batch reach the sink. Tiers without and with state differ in this."""

    def missing(self, batch: Batch, wait_for_turn: Callable[[Batch], Batch | None]) -> Batch | None:
        """Return the part of the batch to write when `wait_for_turn` has returned; None if nothing
        is left.
        """

    def part_of(self, rows: pa.Table, part: Batch) -> pa.Table:
        """Return the rows that belong to a part of the batch."""

    def write(self, rows: pa.Table, batch: Batch, before: float | None) -> Stored:
        """Write the rows and the ledger's row.

        `before` is when another incarnation committed last (epoch seconds).
        """


def may_take_over(age: float, waited: float, *, goes_back: bool = False) -> bool:
    """Tell whether now is a good moment to take over.

    `age` is the time since the owner's last commit, `waited` the time spent waiting. Unit: seconds.
    If the batch `goes_back`, an owner that still writes keeps the turn.
    """
    is_due = age <= JUST_SECONDS and not goes_back
    return is_due or age >= QUIET_SECONDS or waited >= PATIENCE_SECONDS


class BatchWriter:
    """Waits for the turn, writes what the ledger lacks, retries while services are away, and
    counts.
    """

    def __init__(self, config: EngineConfig, control: Control, sink: Sink) -> None:
        """Prepare; nothing is read or written yet."""
        self._config, self._control, self._sink = config, control, sink
        self._commits = config.flow.commits = Commits()
        self.held = threading.Event()
        """Set while the tier is held: no further transaction begins."""
        self.ledger = Ledger(
            config.postgres,
            config.tier.name,
            config.incarnation,
            sink,
            at_most_once=config.tier.delivery is Delivery.AT_MOST_ONCE,
            halt=self.held,
        )
        self.watch = Watch(config.identities)
        self.logs = Logs()
        """The topic ids and leader epochs that the run reads."""
        self.has_turn = False
        """Whether this run has written a batch, so that the next batches are its own too."""
        self.done: dict[str, int] = {}
        """Where the last batch ends that was written, here or by another incarnation."""
        self.gap: float | None = None
        """The gap in the output at the takeover, once it is known. Unit: seconds."""
        self._gate = threading.Lock()
        """Held during a transaction."""
        self._waits_since: float | None = None
        self._before: float | None = None
        """When another incarnation committed the tier's last batch."""
        self._doubt = False
        """Records of the last batch may be lost.

        Until the sink takes a record again, each batch risks only one.
        """

    def begin(self, positions: dict[str, int]) -> None:
        """Begin a run at these positions."""
        self.held.clear()
        self.has_turn, self._waits_since = False, None
        self.done = positions

    def hold(self) -> None:
        """Let a transaction finish that has begun; begin no other."""
        self.held.set()
        with self._gate:
            pass

    def check_inputs(self, last: LastBatch | None, way_out: Callable[[LastBatch], str]) -> None:
        """Read the topic ids and leader epochs; RecordsGoneError if the ledger's positions belong
        to other logs.

        Also RecordsGoneError if a partition was cut back below them. `way_out` tells what a person
        can do then.
        """
        now = self.watch.now(self._config.streams.places(self._config.inputs))
        if last is None or not now.streams:
            self.logs = now
            return
        ledger_ids = of_positions(last.ends, last.streams)
        refuse_changed(ledger_ids, now.streams, way_out(last))
        if cut := self.watch.cut(last.ends, last.epochs, now.epochs):
            raise cut_error(last.ends, cut, way_out(last))
        if new := {
            name: now.streams[name] for name in of_positions(last.ends, now.streams) if name not in ledger_ids
        }:
            log.info(
                "the ledger has no topic ids of some inputs; it adopts those of the present topics",
                streams=new,
            )
            self.ledger.adopt_streams(new)
        self.logs = now

    def put(self, rows: pa.Table, batch: Batch, target: BatchTarget) -> None:
        """Write the part of a batch that the ledger lacks once the turn has come; return when the
        ledger has all of it.
        """
        while True:
            try:
                with self._config.flow.phases.labels("turn").time():
                    missing = target.missing(batch, self._wait_for_turn)
                part = (
                    missing
                    if missing is None or not self._doubt
                    else Batch(missing.begins, portion(missing.begins, missing.ends, 1))
                )
                if part is not None:
                    part = self._same_logs(part)
                    with self._gate:
                        self._refuse_when_held()
                        with self._config.flow.phases.labels("write").time():
                            part_rows = rows if part == batch else target.part_of(rows, part)
                            self._note(target.write(part_rows, part, self._before), part)
            except GivenUpError as given_up:
                self._commits.lost += given_up.lost
                log.warning("records may be lost", why=str(given_up))
            except LedgerMovedError as moved:
                log.info("another incarnation has written meanwhile", moved=str(moved))
            except psycopg.errors.ProgramLimitExceeded:
                raise  # PostgreSQL would refuse it at each try
            except (*UNAVAILABLE, SinkAwayError, StreamError) as error:
                self._commits.retries += 1
                wait = max(AWAY_SECONDS, error.wait if isinstance(error, SinkAwayError) else 0.0)
                away = self._config.flow.away = error_text(error)
                log.warning(
                    "a service that the batch needs does not answer; the batch is retried",
                    begins=batch.begins,
                    error=away,
                    seconds=wait,
                )
                self.held.wait(wait)
            else:
                self._config.flow.away = None
                if self._doubt:
                    self.held.wait(AWAY_SECONDS)
                if part == missing:
                    return

    def wait_for_interval(self) -> None:
        """Wait for the start of the next batch, or until the tier is held.

        An incarnation without the turn starts later.
        """
        behind = 0.0 if self._is_mine() else BEHIND_SECONDS
        interval = self._config.tier.interval
        self.held.wait(interval - (time.time() - behind) % interval)

    def _same_logs(self, batch: Batch) -> Batch:
        """Return the batch with its topic ids and leader epochs.

        RecordsGoneError if a topic was recreated since the run began; ReadAgainError if a leader
        was elected.
        """
        now = self.watch.now(batch.ends)
        refuse_changed(
            {name: [identity] for name, identity in self.logs.streams.items()},
            now.streams,
            "the query is restarted",
        )
        if elected := sorted(
            place for place, epoch in now.epochs.items() if self.logs.epochs.get(place, epoch) != epoch
        ):
            raise ReadAgainError(elected)
        self.logs = self.logs.on(now)
        return replace(batch, streams=now.streams, epochs=now.epochs)

    def _wait_for_turn(self, batch: Batch) -> Batch | None:
        """Wait for the turn, and return the part of a batch that the ledger lacks then; None if it
        lacks nothing.
        """
        while True:
            self._refuse_when_held()
            last = self.ledger.last()
            if last is None:
                return batch
            missing = batch.rest(last.ends)
            if missing is None:
                self.done = dict(last.ends)
                return None
            if not self.has_turn:
                self._before = last.at
            self._waits_since = self._waits_since or time.monotonic()
            waited = time.monotonic() - self._waits_since
            if self._is_mine() or may_take_over(last.age, waited, goes_back=batch.goes_back(last)):
                return missing
            self.held.wait(LOOK_SECONDS)

    def _is_mine(self) -> bool:
        return self.has_turn or self._control.owns

    def _refuse_when_held(self) -> None:
        if self.held.is_set():
            message = "the tier is held; the next run reads the batch again"
            raise HeldError(message)

    def _note(self, stored: Stored, batch: Batch) -> None:
        """Take the turn, and count what was stored."""
        self.has_turn, self.done = True, batch.ends
        flow, commits, counts = self._config.flow, self._commits, stored.counts
        flow.records_out = raised(flow.records_out, {self._sink.name: counts.written})
        flow.quarantined += counts.quarantined + counts.refused
        commits.replays += counts.replays
        # a state that is computed again may correct the ledger to fewer; a counter never falls
        commits.filtered += max(0, counts.filtered)
        commits.late += max(0, counts.late)
        commits.lost += counts.lost
        self._doubt = counts.lost > 0
        commits.marks, flow.last_out = self.ledger.marks, stored.at
        if stored.arrived:
            waits = [stored.at * 1000 - arrived for arrived in stored.arrived]
            flow.latency_ms, flow.latency_p99_ms = statistics.median(waits), slowest_in_hundred(waits)
            flow.waits = flow.waits.plus(stored.at - arrived / 1000 for arrived in stored.arrived)
        if self.gap is None:
            self.gap = stored.gap
