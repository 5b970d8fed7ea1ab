"""Measures the latency of live records during a replay, every second, from what the tiers write.

The pace of the replay follows this latency.
"""

import threading
import time

import psycopg
import structlog
from confluent_kafka import KafkaException

from sluice.api.declarations import Pipeline
from sluice.api.origins import REPLAY
from sluice.kafka.reader import StreamError, Streams, topic_and_number
from sluice.postgres import Connected
from sluice.replay.pace import Pace

log = structlog.get_logger()

LOOK_SECONDS = 1.0
MAX_RECORDS = 500
"""The most new records that one look reads from a partition."""


class LatencyWatch(threading.Thread):
    """Measures latencies in all streams and tables of the pipeline."""

    def __init__(self, kafka: str, postgres: str, pipeline: Pipeline, pace: Pace) -> None:
        """Count records that arrive from now on as live: a replay's records arrived before."""
        super().__init__(name="watch", daemon=True)
        self._streams, self._tables, self._pace = Streams(kafka), Connected(postgres), pace
        self._topics = [stream.name for tier in pipeline.tiers for stream in tier.outputs]
        self._sinks = [tier for tier in pipeline.tiers if tier.sink is not None]
        self._since = int(time.time() * 1000)
        self._read: dict[str, int] = {}
        self._batches: dict[str, int] = {}
        self._stopping = threading.Event()
        self.failure: Exception | None = None
        """The exception that ended the thread; the player raises it.

        Without it, the replay would continue at its last pace.
        """

    def run(self) -> None:
        """Measure until `end`."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 — the player raises the exception
            self.failure = error

    def _look(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                waits = self._stream_waits() | self._table_waits()
            except (StreamError, KafkaException, psycopg.Error) as error:
                log.warning(
                    "the latency of live records cannot be measured, so the replay pauses until it can",
                    error=str(error).splitlines()[0],
                )
                self._tables.close()
                self._pace.add(time.monotonic(), None)
            else:
                self._pace.add(time.monotonic(), waits)

    def end(self) -> None:
        """Stop measuring, and wait for the end of the thread."""
        self._stopping.set()
        self.join()

    def _stream_waits(self) -> dict[str, list[float]]:
        """Return, by stream, the seconds of each live record from its arrival to the stream."""
        waits: dict[str, list[float]] = {}
        ends = self._streams.bounds(self._topics).ends
        starts = {
            topic_and_number(place): max(self._read.get(place, end), end - MAX_RECORDS)
            for place, end in ends.items()
        }
        self._read = ends
        for seen in self._streams.read(starts, ends):
            if seen.arrived is not None and seen.arrived >= self._since and REPLAY not in seen.out.tier:
                waits.setdefault(topic_and_number(seen.place.rpartition(":")[0])[0], []).append(
                    (seen.out.at - seen.arrived) / 1000
                )
        return waits

    def _table_waits(self) -> dict[str, list[float]]:
        """Return, by tier with a sink, the seconds of each batch's oldest record from the input to
        the sink.
        """
        waits: dict[str, list[float]] = {}
        connection = self._tables.open()
        for tier in self._sinks:
            rows = connection.execute(
                "SELECT batch, begins, ends, extract(epoch FROM at)::float8 FROM ledger"
                " WHERE tier = %s AND batch > %s AND at > to_timestamp(%s) AND replay IS NULL ORDER BY batch",
                (tier.name, self._batches.get(tier.name, -1), self._since / 1000),
            ).fetchall()
            for batch, begins, ends, at in rows:
                self._batches[tier.name] = batch
                stamps = self._streams.times_at(
                    {place: begins[place] for place, end in ends.items() if begins.get(place, end) < end}
                )
                if stamps:  # a batch begins each interval, so shorter waits are chance
                    waited = max(tier.interval, at - min(stamps.values()) / 1000)
                    waits.setdefault(tier.name, []).append(waited)
        return waits
