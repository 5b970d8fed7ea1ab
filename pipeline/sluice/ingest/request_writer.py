"""Writes the records of many requests with one transaction at a time."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import structlog

from sluice.ingest.requests import Answer, Answers, Meter, RefusedError, Sent, another_body
from sluice.ingest.source import NotWrittenError, Record, Source, SourceError
from sluice.ingest.source_metrics import Written

log = structlog.get_logger()

BUFFER_BYTES = 64 * 1024 * 1024
"""With more bytes of waiting requests, further requests are refused."""
BATCH_BYTES = 8 * 1024 * 1024
"""About the most bytes of one transaction."""
AGAIN_SECONDS = 1.0
"""The pause after Kafka took nothing."""
TURN_SECONDS = 1.0
TROUBLE_SECONDS = 10.0
"""Without an answer of Kafka for so long, the source is not healthy."""
BUSY_SECONDS = 1
"""When a client may try again if the buffer is full."""
AWAY_SECONDS = 5
"""When a client may try again if Kafka is away."""


@dataclass(eq=False)
class _Waiting:
    """A request that waits for Kafka."""

    key: str | None
    body: str
    place: str
    records: Sequence[Sent]
    answer: Future[Answer] = field(default_factory=Future)

    @property
    def size(self) -> int:
        return sum(len(record.value) for record in self.records)


class RequestWriter:
    """Takes requests from many threads; one thread writes them."""

    def __init__(self, source: Source, answers: Answers, stop: threading.Event) -> None:
        """Prepare the writer of a source that this process owns. `stop` ends its pauses."""
        self._source, self._answers, self._stop = source, answers, stop
        self._queue: deque[_Waiting] = deque()
        self._by_key: dict[str, _Waiting] = {}
        self._bytes, self._is_closed = 0, False
        self._changed = threading.Condition()
        self._failed_at = self._writing_since = math.inf
        self.meter, self.written = Meter(), Written()
        self.ended: SourceError | None = None
        """Why the source cannot write any more."""

    def submit(self, key: str | None, body: str, place: str, records: Sequence[Sent]) -> "Future[Answer]":
        """Return the future answer to a request, which is that of an earlier one with this key.

        RefusedError if the request cannot be taken.
        """
        with self._changed:
            if key is not None:
                if (known := self._answers.find(key, body, time.time())) is not None:
                    (answered := Future[Answer]()).set_result(known)
                    return answered
                if (same := self._by_key.get(key)) is not None:
                    if same.body != body:
                        raise another_body()
                    return same.answer
            if self.ended is not None or self._is_closed:
                raise RefusedError(503, "the source is stopping", after=AWAY_SECONDS)
            if (after := self.meter.refuse(time.monotonic())) is not None:
                raise RefusedError(429, "the pipeline takes fewer records at the moment", after=after)
            waiting = _Waiting(key, body, place, records)
            if self._bytes and self._bytes + waiting.size > BUFFER_BYTES:
                raise RefusedError(429, "too many records wait for Kafka", after=BUSY_SECONDS)
            self.meter.take(len(records))
            self._queue.append(waiting)
            self._bytes += waiting.size
            if key is not None:
                self._by_key[key] = waiting
            self._changed.notify()
            return waiting.answer

    def trouble(self, now: float) -> str | None:
        """Return why clients shall use another server at the moment; None if they need not.

        `now` is on the monotonic clock.
        """
        if self.ended is not None:
            return str(self.ended)
        if now - self._writing_since > TROUBLE_SECONDS:
            return "Kafka does not answer"
        if 0 <= now - self._failed_at < TROUBLE_SECONDS:
            return "Kafka takes no records"
        return None

    @property
    def waiting_bytes(self) -> int:
        """The bytes of requests that wait for Kafka."""
        return self._bytes

    def throttle(self, admitted: float | None) -> None:
        """Let in so many records each second; None: as many as come."""
        with self._changed:
            self.meter.admitted = admitted

    def close(self) -> None:
        """Let `run` return once everything that waits is written."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def run(self, turn: Callable[[], None] = lambda: None) -> None:
        """Write until `close`, or until another process owns the source.

        `turn` is called at each turn of the loop, at least once a second while nothing waits.
        """
        while self.ended is None and (batch := self._next(turn)):
            now = time.time()
            new = {
                waiting.key: Answer(body=waiting.body, records=len(waiting.records), at=now)
                for waiting in batch
                if waiting.key is not None
            }
            records = [
                Record(record.key, record.value, f"{waiting.place}:{number}")
                for waiting in batch
                for number, record in enumerate(waiting.records)
            ]
            self._writing_since = time.monotonic()
            self.written.begin()
            try:
                self._source.write(records, self._answers.changes(new, now))
            except NotWrittenError as error:
                log.warning("Kafka took no records; clients are told to try again", reason=str(error))
                self._failed_at = time.monotonic()
                self.written.refuse(str(error))
                self._fail(batch)
                self._stop.wait(AGAIN_SECONDS)
            except SourceError as error:
                with self._changed:
                    self.ended = error
                    batch += self._queue
                    self._queue.clear()
                self._fail(batch)
            else:
                self._failed_at = math.inf
                self.written.add(record.value for record in records)
                self._written(batch, new, now)
            self._writing_since = math.inf

    def _next(self, turn: Callable[[], None]) -> list[_Waiting]:
        """Return the requests of the next transaction; none if the writer is closed."""
        with self._changed:
            turn()
            while not self._changed.wait_for(lambda: self._queue or self._is_closed, TURN_SECONDS):
                turn()
            batch: list[_Waiting] = []
            size = 0
            while self._queue and (not batch or size + self._queue[0].size <= BATCH_BYTES):
                batch.append(self._queue.popleft())
                size += batch[-1].size
            return batch

    def _written(self, batch: Sequence[_Waiting], new: dict[str, Answer], now: float) -> None:
        with self._changed:
            self._answers.remember(new, now)
            self._forget(batch)
        for waiting in batch:
            waiting.answer.set_result(Answer(body=waiting.body, records=len(waiting.records), at=now))

    def _fail(self, batch: Sequence[_Waiting]) -> None:
        with self._changed:
            self._forget(batch)
        refusal = RefusedError(503, "Kafka took none of the records", after=AWAY_SECONDS)
        for waiting in batch:
            waiting.answer.set_exception(refusal)

    def _forget(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            self._bytes -= waiting.size
            if waiting.key is not None:
                del self._by_key[waiting.key]
