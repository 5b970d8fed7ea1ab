"""What live records take while a replay goes on, measured every second from what the tiers write; the pace follows it."""

import threading
import time

import psycopg
import structlog
from confluent_kafka import KafkaException

from sluice.api.declarations import Pipeline
from sluice.api.origins import REPLAY
from sluice.driver.engine.contract import INTERVAL
from sluice.kafka.reader import StreamError, Streams, split
from sluice.postgres import Connected
from sluice.replay.pace import Pace

log = structlog.get_logger()

LOOK_SECONDS = 1.0
MOST = 500
"""Of the records that have come since the last look, so many of each partition are read."""


class Watch(threading.Thread):
    """Looks at every stream and every table of the pipeline."""

    def __init__(self, kafka: str, postgres: str, pipeline: Pipeline, pace: Pace) -> None:
        """Prepare; what arrives from now on is live, for a replay's records all came before."""
        super().__init__(name="watch", daemon=True)
        self._streams, self._tables, self._pace = Streams(kafka), Connected(postgres), pace
        self._topics = [stream.name for tier in pipeline.tiers for stream in tier.outputs]
        self._sinks = [tier.name for tier in pipeline.tiers if tier.sink is not None]
        self._since = int(time.time() * 1000)
        self._read: dict[str, int] = {}
        self._batches: dict[str, int] = {}
        self._over = threading.Event()
        self.failure: Exception | None = None
        """Why it looks no more, though nobody has ended it: without it the replay would go on at its last pace."""

    def run(self) -> None:
        """Look until `end`."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 — whoever plays raises it
            self.failure = error

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                waits = self._of_streams() | self._of_tables()
            except (StreamError, KafkaException, psycopg.Error) as error:
                log.warning("what live records take cannot be measured", error=str(error).splitlines()[0])
                self._tables.close()
                self._pace.look(time.monotonic(), None)
            else:
                self._pace.look(time.monotonic(), waits)

    def end(self) -> None:
        """Stop looking."""
        self._over.set()
        self.join()

    def _of_streams(self) -> dict[str, list[float]]:
        """Return how long each live record took from its arrival in the pipeline to each stream."""
        waits: dict[str, list[float]] = {}
        ends = self._streams.bounds(self._topics).ends
        starts = {split(place): max(self._read.get(place, end), end - MOST) for place, end in ends.items()}
        self._read = ends
        for seen in self._streams.read(starts, ends):
            if seen.arrived is not None and seen.arrived >= self._since and REPLAY not in seen.out.tier:
                waits.setdefault(split(seen.place.rpartition(":")[0])[0], []).append(
                    (seen.out.at - seen.arrived) / 1000
                )
        return waits

    def _of_tables(self) -> dict[str, list[float]]:
        """Return how long the oldest record of each batch had waited in the tier's input when the batch was written."""
        waits: dict[str, list[float]] = {}
        connection = self._tables.open()
        for tier in self._sinks:
            rows = connection.execute(
                "SELECT batch, begins, ends, extract(epoch FROM at)::float8 FROM ledger"
                " WHERE tier = %s AND batch > %s AND at > to_timestamp(%s) AND replay IS NULL ORDER BY batch",
                (tier, self._batches.get(tier, -1), self._since / 1000),
            ).fetchall()
            for batch, begins, ends, at in rows:
                self._batches[tier] = batch
                stamps = self._streams.stamps(
                    {place: begins[place] for place, end in ends.items() if begins.get(place, end) < end}
                )
                if stamps:  # a batch begins every two seconds: less than that is chance
                    waits.setdefault(tier, []).append(max(INTERVAL, at - min(stamps.values()) / 1000))
        return waits
