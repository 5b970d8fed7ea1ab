"""A row of `tier_progress` every two seconds: rates, lag, latency, and what each slot has read. Never in the way of data."""

import json
import statistics
import threading
import time
from typing import TYPE_CHECKING

import psycopg
import structlog
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError

from ops.model.ids import Incarnation, TierName
from ops.model.incarnation import TierProgress
from pipeline.driver.slots import SlotCounts
from pipeline.driver.streams import StreamError, Streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.driver.engine import Engine, Setting

log = structlog.get_logger()

EVERY_SECONDS = 2.0
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

    def __init__(self, setting: "Setting", engine: "Engine", began: "Callable[[], dict[str, int] | None]") -> None:
        """Measure what `engine` does; `began` says where it started, or None while it does not run."""
        self._setting = setting
        self._engine = engine
        self._began = began
        self._positions: dict[str, int] = {}
        self._slots = SlotCounts(setting.session)
        self._streams = Streams(setting.kafka)
        self._stop = threading.Event()
        self._said = False
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._before: tuple[float, int, int] | None = None
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
                self._before = None
                continue
            try:
                self._write(self._measure(began))
                self._said = False
            except (psycopg.Error, StreamError, KafkaException, Py4JError, OSError) as error:
                if not self._said:
                    log.warning("progress is not written; data is not affected", error=str(error).splitlines()[0])
                self._said = True
                self._connection = None

    def _measure(self, began: dict[str, int]) -> TierProgress:
        setting = self._setting
        ends = self._streams.bounds(setting.inputs).ends
        out, latency = self._by_output(began) if setting.tier.sink is None else self._by_commits()
        positions = self._positions
        now = time.monotonic()
        done = sum(positions.values())
        before = self._before or (now, done, out)
        self._before = (now, done, out)
        seconds = max(now - before[0], 0.001)
        return TierProgress(
            tier=TierName(setting.tier.name),
            incarnation=Incarnation(setting.incarnation),
            at=time.time(),
            rate_in=round(max(0, done - before[1]) / seconds, 1),
            rate_out=round(max(0, out - before[2]) / seconds, 1),
            lag=sum(max(0, end - positions[name]) for name, end in ends.items() if name in positions),
            latency_ms=latency,
            slots=self._slots.read(),
            details={"positions": positions},
        )

    def _by_output(self, began: dict[str, int]) -> tuple[int, float | None]:
        """A stream tells by its last records how far its tier is."""
        topics = self._setting.outputs
        written = self._streams.bounds(topics).ends
        self._positions = {name: max(offset, self._positions.get(name, 0)) for name, offset in began.items()}
        waits: list[int] = []
        for seen in self._streams.last(topics, written, before=RECORDS):
            if seen.out.tier != self._setting.tier.name:
                continue
            if seen.out.partition in self._positions:
                self._positions[seen.out.partition] = max(self._positions[seen.out.partition], seen.out.offset + 1)
            if seen.arrived is not None and seen.out.at > (time.time() - FRESH_SECONDS) * 1000:
                waits.append(seen.out.at - seen.arrived)
        return sum(written.values()), float(statistics.median(waits)) if waits else None

    def _by_commits(self) -> tuple[int, float | None]:
        """A sink's tier is as far as its last commit."""
        self._positions = self._engine.positions()
        return self._engine.latest()

    def _connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._setting.postgres, autocommit=True, connect_timeout=3)
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
