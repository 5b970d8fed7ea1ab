"""A row of `tier_progress` every two seconds: rates, lag, latency, and what each slot has read. Never in the way of data.

What it measures it also counts in the incarnation's `flow`, so that `sluice status` and Prometheus say the same.
"""

import json
import statistics
import threading
import time
from typing import TYPE_CHECKING

import psycopg
import structlog

from sluice.driver.control.wait_for_services import is_away
from sluice.driver.counters import raised
from sluice.driver.positions.lag import Behind, Look
from sluice.driver.process.task_watchdog import TaskWatchdog
from sluice.driver.spark.slots import SlotCounts
from sluice.failures import error_text
from sluice.kafka.reader import Seen, Streams, topic_and_number
from sluice.postgres import connect
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import TierProgress
from sluice_ops.model.tier import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from sluice.driver.engine.contract import Engine
    from sluice.driver.engine.settings import EngineConfig

log = structlog.get_logger()

EVERY_SECONDS = 2.0
KEYS = 500
"""Of each partition that are looked at for a hot key, when the tier is behind too far."""
RENEW_SECONDS = 60.0
"""Between two questions how many partitions there are."""
RECORDS = 20
"""Of each output partition that are looked at each time."""
FRESH_SECONDS = 10.0
"""Older records tell nothing of the latency now."""
UPSERT = (
    "INSERT INTO tier_progress (tier, incarnation, at, rate_in, rate_out, lag, latency_ms, slots, details)"
    " VALUES (%s, %s, to_timestamp(%s), %s, %s, %s, %s, %s, %s) ON CONFLICT (tier) DO UPDATE SET"
    " (incarnation, at, rate_in, rate_out, lag, latency_ms, slots, details) = (excluded.incarnation, excluded.at, excluded.rate_in,"
    " excluded.rate_out, excluded.lag, excluded.latency_ms, excluded.slots, excluded.details)"
    " WHERE tier_progress.incarnation <= excluded.incarnation"
)


class Progress:
    """Measures and writes, in a thread of its own."""

    def __init__(
        self, config: "EngineConfig", engine: "Engine", began: "Callable[[], dict[str, int] | None]"
    ) -> None:
        """Measure what `engine` does; `began` says where it started, or None while it does not run."""
        self._config = config
        self._engine = engine
        self._began = began
        self._flow = config.flow
        self._positions: dict[str, int] = {}
        self._read, self._written = Growth(), Growth()
        self._slots = SlotCounts(config.session)
        self._streams = Streams(config.kafka)
        self._watchdog = TaskWatchdog(config, self._streams)
        self._stop = threading.Event()
        self._said = False
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._before: tuple[float, int, int] | None = None
        self._behind = Behind(config.tier.inputs)
        self._ends: dict[str, int] = {}
        self._batch: str | None = None
        self._renew_at = 0.0
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for the database."""
        self._stop.set()
        self._thread.join(timeout=1.0)

    def _loop(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            began = self._began()
            if began is None:
                self._before, self._flow.lag, self._flow.state, self._flow.looked = None, {}, {}, None
                self._flow.waiting, self._flow.pressure, self._ends, self._flow.unanswered = (
                    {},
                    None,
                    {},
                    None,
                )
                self._behind.forget()
                self._watchdog.forget()
                self._read, self._written = Growth(), Growth()
                continue
            try:
                self._write(self._look(began))
                self._said = False
            except Exception as error:  # noqa: BLE001 — of Kafka, PostgreSQL, a JVM: whatever it is, the next look is made
                if not self._said:
                    log.warning("progress is not written; data is not affected", error=error_text(error))
                self._said = True
                self._connection = None

    def _look(self, began: dict[str, int]) -> TierProgress:
        """Measure; note where Kafka does not answer: queries and executors wait for it without a word."""
        try:
            found = self._measure(began)
        except Exception as error:
            self._flow.unanswered = error_text(error) if is_away(error) else None
            raise
        self._flow.unanswered = None
        return found

    def _measure(self, began: dict[str, int]) -> TierProgress:
        config, flow = self._config, self._flow
        if time.monotonic() >= self._renew_at:
            self._streams.renew()
            self._renew_at = time.monotonic() + RENEW_SECONDS
        bounds = self._streams.bounds(config.inputs)
        ends = bounds.ends
        if config.tier.sink is None:
            self._by_output(
                bounds.oldest | began
            )  # of partitions that were added since, nothing was read then
        else:
            self._positions = bounds.oldest | self._engine.positions()
        positions = self._positions
        flow.records_in = raised(flow.records_in, self._read.to(positions))
        look = Look(time.monotonic(), time.time(), ends, dict(positions), self._waits(ends))
        self._behind.look(look, self._engine.read, self._keys, metered=flow.metered)
        flow.lag = {stream: lag.records for stream, lag in self._behind.lags.items()}
        flow.waiting = {stream: lag.seconds for stream, lag in self._behind.lags.items()}
        flow.pressure = self._behind.pressure
        self._look_at_batch()
        now, done, out = time.monotonic(), sum(flow.records_in.values()), sum(flow.records_out.values())
        before = self._before or (now, done, out)
        self._before, flow.looked = (now, done, out), time.time()
        seconds = max(now - before[0], 0.001)
        slots = self._slots.read()
        self._watchdog.look(self._slots.running, ends)
        return TierProgress(
            tier=TierName(config.tier.name),
            incarnation=Incarnation(config.incarnation),
            at=flow.looked,
            rate_in=round((done - before[1]) / seconds, 1),
            rate_out=round((out - before[2]) / seconds, 1),
            lag=sum(flow.lag.values()),
            latency_ms=flow.latency_ms,
            slots=slots,
            details={"positions": positions},
        )

    def _waits(self, ends: dict[str, int]) -> dict[str, float]:
        """Return for how long the oldest record of each partition waits; of those that were not there at the last look, nothing."""
        before, self._ends = self._ends, ends
        old = {
            name: offset
            for name, offset in self._positions.items()
            if offset < before.get(name, ends.get(name, 0))
        }
        now = time.time()
        return {name: now - at / 1000 for name, at in self._streams.times_at(old).items()} if old else {}

    def _keys(self, stream: str) -> dict[int, list[bytes | None]]:
        places = {
            name: offset for name, offset in self._positions.items() if topic_and_number(name)[0] == stream
        }
        return {topic_and_number(name)[1]: keys for name, keys in self._streams.keys(places, KEYS).items()}

    def _by_output(self, began: dict[str, int]) -> None:
        """A stream tells by its last records how far its tier is."""
        flow, topics = self._flow, self._config.outputs
        written = self._streams.bounds(topics).ends
        floor = self._engine.floor()
        self._positions = {
            name: max(offset, floor.get(name, 0), self._positions.get(name, 0))
            for name, offset in began.items()
        }
        last = [] if self._written.stands_at(written) else self._streams.last(topics, written, before=RECORDS)
        mine = [seen for seen in last if seen.out.tier == self._config.tier.name]
        for seen in mine:
            if seen.out.partition in self._positions:
                self._positions[seen.out.partition] = max(
                    self._positions[seen.out.partition], seen.out.offset + 1
                )
        fresh = [
            wait
            for seen in mine
            if (wait := _wait(seen)) is not None and seen.out.at > (time.time() - FRESH_SECONDS) * 1000
        ]
        flow.latency_ms = float(statistics.median(fresh)) if fresh else None
        flow.waits = flow.waits.plus(
            wait / 1000 for seen in mine if self._written.is_new(seen) and (wait := _wait(seen)) is not None
        )
        flow.last_out = max((seen.out.at / 1000 for seen in mine), default=flow.last_out)
        grown = self._written.to(written)
        good = {stream.name for stream in self._config.tier.outputs}
        flow.records_out = raised(
            flow.records_out, {topic: count for topic, count in grown.items() if topic in good}
        )
        flow.quarantined += sum(count for topic, count in grown.items() if topic not in good)

    def _look_at_batch(self) -> None:
        """Take the state and, once, the phases of the last batch from Spark; realtime has no batches to speak of."""
        last = self._engine.last_batch() if self._config.tier.mode is Mode.BATCH else None
        if last is None:
            return
        self._flow.state = held(last)
        if last.numInputRows == 0 or self._batch == last.timestamp:
            return
        self._batch = last.timestamp
        # all of them together say nothing new, and a sink's own phase holds the pause until the next batch
        left = {"triggerExecution"} if self._config.tier.sink is None else {"triggerExecution", "addBatch"}
        for phase, milliseconds in last.durationMs.items():
            if phase not in left:
                self._flow.phases.labels(phase).observe(milliseconds / 1000)

    def _connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._config.postgres)
        return self._connection

    def _write(self, row: TierProgress) -> None:
        self._connect().execute(
            UPSERT,
            (
                row.tier,
                row.incarnation,
                row.at,
                row.rate_in,
                row.rate_out,
                row.lag,
                row.latency_ms,
                json.dumps(row.slots),
                json.dumps(row.details),
            ),
        )


class Growth:
    """How far partitions have got from one look to the next. Pure."""

    def __init__(self) -> None:
        """Know nothing yet: the first look is what later ones are held against."""
        self._before: dict[str, int] = {}

    def stands_at(self, now: dict[str, int]) -> bool:
        """Tell whether nothing has come since the last look."""
        return now == self._before

    def is_new(self, seen: Seen) -> bool:
        """Tell whether a record lies behind the last look."""
        partition, _, offset = seen.place.rpartition(":")
        return int(offset) >= self._before.get(partition, 1 << 62)

    def to(self, now: dict[str, int]) -> dict[str, int]:
        """Return by how much each stream has grown."""
        grown: dict[str, int] = {}
        for partition, offset in now.items():
            topic = topic_and_number(partition)[0]
            grown[topic] = grown.get(topic, 0) + max(0, offset - self._before.get(partition, offset))
        self._before = now
        return grown


def held(batch: "StreamingQueryProgress") -> dict[str, tuple[int, int]]:
    """Return the rows and the bytes of memory that each of Spark's operators holds; those of one name together."""
    found: dict[str, tuple[int, int]] = {}
    for operator in batch.stateOperators:
        rows, memory = found.get(operator.operatorName, (0, 0))
        found[operator.operatorName] = rows + operator.numRowsTotal, memory + operator.memoryUsedBytes
    return found


def _wait(seen: Seen) -> int | None:
    """Return how long a record took from its arrival in the pipeline to this output. Unit: ms."""
    return None if seen.arrived is None else seen.out.at - seen.arrived
