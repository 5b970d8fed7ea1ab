"""Writes a row of `tier_progress` every two seconds: rates, lag, latency, and records by slot.

It never delays records.

The same numbers go into the incarnation's `flow`, so that `sluice status` and Prometheus show them
too.
"""

import json
import statistics
import threading
import time
from typing import TYPE_CHECKING

import psycopg
import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sluice import metrics
from sluice.driver.control.wait_for_services import is_away
from sluice.driver.counters import raised, slowest_in_hundred
from sluice.driver.positions.lag import LagHistory, Look
from sluice.driver.process.batch_clock import BatchClock, EndedBatch
from sluice.driver.process.load_meter import LoadMeter, Sums
from sluice.driver.process.query_watchdog import QueryWatchdog
from sluice.driver.process.task_watchdog import TaskWatchdog
from sluice.driver.spark.slots import SlotCounts
from sluice.failures import error_text
from sluice.kafka.expiry import kept_seconds
from sluice.kafka.reader import Seen, Streams, topic_and_number
from sluice.postgres import connect
from sluice_ops.model.ids import Incarnation, TierName
from sluice_ops.model.incarnation import TierProgress
from sluice_ops.model.tier import Mode
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from sluice.driver.engine.contract import Engine
    from sluice.driver.engine.settings import EngineConfig
    from sluice_ops.model.load import TierLoad

log = structlog.get_logger()

EVERY_SECONDS = 2.0
KEYS = 500
"""Records of each partition that are read to find a hot key, when the tier lags too far."""
RENEW_SECONDS = 60.0
"""Time between two questions for the number of partitions."""
RECORDS = 20
"""Records of each output partition that are read each time."""
FRESH_SECONDS = 10.0
"""Older records do not count for the present latency."""
UPSERT = (
    "INSERT INTO tier_progress (tier, incarnation, at, rate_in, rate_out, lag, latency_ms, slots, details) "
    "VALUES (%s, %s, to_timestamp(%s), %s, %s, %s, %s, %s, %s) ON CONFLICT (tier) DO UPDATE SET "
    "(incarnation, at, rate_in, rate_out, lag, latency_ms, slots, details) = (excluded.incarnation, "
    "excluded.at, excluded.rate_in, excluded.rate_out, excluded.lag, excluded.latency_ms, excluded.slots, "
    "excluded.details) WHERE tier_progress.incarnation <= excluded.incarnation"
)


class Progress:
    """Measures and writes, in a thread of its own."""

    def __init__(
        self,
        config: "EngineConfig",
        engine: "Engine",
        began: "Callable[[], dict[str, int] | None]",
        report_load: "Callable[[TierLoad], None]",
    ) -> None:
        """Measure `engine`; `began` returns where it started, or None while it does not run or own
        the tier.
        """
        self._report_load, self._load = report_load, LoadMeter()
        self._config = config
        self._engine = engine
        self._began = began
        self._flow = config.flow
        self._positions: dict[str, int] = {}
        self._read, self._written = Growth(), Growth()
        self._slots = SlotCounts(config.session)
        self._streams = Streams(config.kafka)
        self._watchdog = TaskWatchdog(config, self._streams)
        self._query_watchdog = QueryWatchdog(config.tier, config.flow)
        self._stop = threading.Event()
        self._failed = False
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._before: tuple[float, dict[str, int], dict[str, int]] | None = None
        """When the last look was, and the records of each input and output until then."""
        self._behind = LagHistory(config.tier.inputs)
        self._admin: AdminClient | None = None
        self._ends: dict[str, int] = {}
        self._batch: str | None = None
        self._clock = BatchClock()
        self._renew_at = 0.0
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End within a second, without waiting for the database."""
        self._stop.set()
        self._thread.join(timeout=1.0)

    def _loop(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            began = self._began()
            if began is None:
                self._before, self._flow.lag, self._flow.state, self._flow.looked = None, {}, {}, None
                self._flow.waiting, self._flow.pressure, self._flow.rate_taken = {}, None, None
                self._ends, self._flow.unanswered = {}, None
                self._behind.forget()
                self._load.forget()
                self._watchdog.forget()
                self._query_watchdog.forget()
                self._read, self._written = Growth(), Growth()
                continue
            try:
                self._write(self._look(began))
                self._failed = False
            except Exception as error:  # noqa: BLE001 — of Kafka, PostgreSQL or the JVM; it tries again
                if not self._failed:
                    log.warning("progress is not written; records flow on", error=error_text(error))
                self._failed = True
                self._connection = None

    def _look(self, began: dict[str, int]) -> TierProgress:
        """Measure; put into `flow.unanswered` that Kafka does not answer, for queries wait for it
        silently.
        """
        try:
            progress = self._measure(began)
        except Exception as error:
            self._flow.unanswered = error_text(error) if is_away(error) else None
            raise
        self._flow.unanswered = None
        return progress

    def _measure(self, began: dict[str, int]) -> TierProgress:
        config, flow = self._config, self._flow
        if time.monotonic() >= self._renew_at:
            self._streams.renew()
            if flow.pressure is not None:
                self._behind.kept = self._kept()
            self._renew_at = time.monotonic() + RENEW_SECONDS
        bounds = self._streams.bounds(config.inputs)
        ends = bounds.ends
        if config.tier.sink is None:
            # of partitions that were added since the start, nothing was read then
            self._by_output(bounds.oldest | began)
        else:
            self._positions = bounds.oldest | self._engine.positions()
        positions = self._positions
        flow.records_in = raised(flow.records_in, self._read.to(positions))
        look = Look(time.monotonic(), time.time(), ends, dict(positions), self._waits(ends))
        self._behind.update(look, self._engine.offset_sum, self._keys, metered=flow.metered)
        flow.lag = {stream: lag.records for stream, lag in self._behind.lags.items()}
        flow.waiting = {stream: lag.seconds for stream, lag in self._behind.lags.items()}
        flow.pressure, flow.rate_taken = self._behind.pressure, self._behind.rate_taken
        self._look_at_batch()
        now, done, out = time.monotonic(), sum(flow.records_in.values()), sum(flow.records_out.values())
        input_rates, output_rates = self._rates(now)
        flow.looked = time.time()
        self._look_at_load(
            Sums(
                now,
                ends,
                done,
                out,
                self._busy_seconds(),
                flow.fixed_seconds,
                metered=flow.metered,
                quarantined=flow.quarantined,
            )
        )
        slots = self._slots.read()
        self._watchdog.check(self._slots.running, ends)
        hung_query = self._query_watchdog.check(self._slots.running, ends, positions)
        flow.hung = flow.hung or hung_query
        return TierProgress(
            tier=TierName(config.tier.name),
            incarnation=Incarnation(config.incarnation),
            at=flow.looked,
            rate_in=round(sum(input_rates.values()), 1),
            rate_out=round(sum(output_rates.values()), 1),
            lag=sum(flow.lag.values()),
            latency_ms=flow.latency_ms,
            slots=slots,
            details={
                "positions": positions,
                "latency_p99_ms": flow.latency_p99_ms,
                "own_counters": metrics.totals(),
                "quarantined": flow.quarantined,
                "input_lags": flow.lag,
                "input_rates": input_rates,
                "output_rates": output_rates,
            },
        )

    def _rates(self, now: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the records per second of each input, and of each output, since the last look."""
        counts = (now, dict(self._flow.records_in), dict(self._flow.records_out))
        before, self._before = self._before or counts, counts
        seconds = max(now - before[0], 0.001)
        input_rates, output_rates = (
            {name: round((count - earlier.get(name, 0)) / seconds, 1) for name, count in counted.items()}
            for counted, earlier in ((counts[1], before[1]), (counts[2], before[2]))
        )
        return input_rates, output_rates

    def _kept(self) -> "Mapping[str, float]":
        """Return how long Kafka keeps the records of the inputs; unknown times are left out."""
        if self._admin is None:
            self._admin = AdminClient({**brokers(self._config.kafka).client, "log_level": 2})
        try:
            return kept_seconds(self._admin, self._config.inputs)
        except KafkaException as error:
            log.warning(
                "Kafka does not tell how long it keeps the input, so no alert tells when it deletes "
                "records that wait; to grant the right, run `sluice publish`",
                error=error_text(error),
            )
            return self._behind.kept

    def _look_at_load(self, sums: Sums) -> None:
        flow = self._flow
        load = self._load.measure(
            sums,
            at=time.time(),
            workers=len(self._config.workers.working()),
            lag=sum(flow.lag.values()),
            lag_seconds=max(flow.waiting.values(), default=0.0),
        )
        if load is not None:
            self._report_load(load)

    def _busy_seconds(self) -> float | None:
        """Return the time in which batches were processed; None for a realtime tier.

        The batch that runs counts, so that a tier with long batches is not idle until one ends. It
        does not while it waits for a service, for which more workers are no help.
        """
        flow = self._flow
        if self._config.tier.mode is Mode.REALTIME:
            return None
        began = flow.batch_began  # read once: the query's thread removes it when the batch ends
        if began is None or flow.waits_for is not None:
            return flow.busy_seconds
        return flow.busy_seconds + time.monotonic() - began

    def _waits(self, ends: dict[str, int]) -> dict[str, float]:
        """Return how long the oldest record of each partition waits, if it was there at the last
        look. Unit: seconds.
        """
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
        """Derive positions, latency and counts from the last records of the output."""
        flow, topics = self._flow, self._config.outputs
        written = self._streams.bounds(topics).ends
        floor = self._engine.complete_floor()
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
        flow.latency_p99_ms = slowest_in_hundred(fresh)
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
        """Take state sizes and, once for each batch, its phases from Spark.

        Realtime batches last a day and are skipped.
        """
        last = self._engine.last_batch() if self._config.tier.mode is Mode.BATCH else None
        if self._config.tier.mode is Mode.BATCH and self._config.tier.sink is None:
            self._count_time(last)
        if last is None:
            return
        self._flow.state = state_sizes(last)
        if last.numInputRows == 0 or self._batch == last.timestamp:
            return
        self._batch = last.timestamp
        # `triggerExecution` is the sum of all phases; a sink's `addBatch` includes the pause before
        # the next batch
        skipped = {"triggerExecution"} if self._config.tier.sink is None else {"triggerExecution", "addBatch"}
        for phase, milliseconds in last.durationMs.items():
            if phase not in skipped:
                self._flow.phases.labels(phase).observe(milliseconds / 1000)

    def _count_time(self, last: "StreamingQueryProgress | None") -> None:
        """Count the batches of a tier that writes streams; a sink's engine counts its own."""
        flow, clock = self._flow, self._clock
        clock.look(
            time.monotonic(),
            None
            if last is None or last.numInputRows == 0
            else EndedBatch(
                last.batchId, last.timestamp, last.durationMs["triggerExecution"] / 1000, last.numInputRows
            ),
            runs=self._engine.batch_runs(),
            workers=self._config.workers.awake,
        )
        flow.busy_seconds, flow.fixed_seconds = clock.busy_seconds, clock.fixed_seconds

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
    """How much partitions have grown from one look to the next. Pure."""

    def __init__(self) -> None:
        """Begin without a look; the first one is only compared with later ones."""
        self._before: dict[str, int] = {}

    def stands_at(self, now: dict[str, int]) -> bool:
        """Tell whether the ends are the same as at the last look."""
        return now == self._before

    def is_new(self, seen: Seen) -> bool:
        """Tell whether a record came after the last look."""
        partition, _, offset = seen.place.rpartition(":")
        return int(offset) >= self._before.get(partition, 1 << 62)

    def to(self, now: dict[str, int]) -> dict[str, int]:
        """Return the growth of each stream since the last look."""
        grown: dict[str, int] = {}
        for partition, offset in now.items():
            topic = topic_and_number(partition)[0]
            grown[topic] = grown.get(topic, 0) + max(0, offset - self._before.get(partition, offset))
        self._before = now
        return grown


def state_sizes(batch: "StreamingQueryProgress") -> dict[str, tuple[int, int]]:
    """Return rows and bytes of memory of Spark's state, by name of operator."""
    sizes: dict[str, tuple[int, int]] = {}
    for operator in batch.stateOperators:
        rows, memory = sizes.get(operator.operatorName, (0, 0))
        sizes[operator.operatorName] = rows + operator.numRowsTotal, memory + operator.memoryUsedBytes
    return sizes


def _wait(seen: Seen) -> int | None:
    """Return the time from a record's arrival in the pipeline to this output. Unit: ms."""
    return None if seen.arrived is None else seen.out.at - seen.arrived
