"""Puts records into their stream again, under the names that they had, at a steady rate."""

import sys
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ops.brokers import brokers
from ops.model.streams import LOOKERS
from pipeline import origins
from pipeline.declare import QUARANTINE, Stream
from pipeline.driver.streams import Streams, name, parse, split
from pipeline.origins import AGAIN
from pipeline.replay.book import Book, Replay, ReplayError

SAVE_SECONDS = 1.0
SAY_SECONDS = 5.0
SECONDS = 20.0
"""How long Kafka may take to give or to take records."""
BY = "replay/0"
"""Who puts a record again, where a tier's run stands otherwise."""


def headers(message: Message, *, outside: bool, quarantined: bool) -> list[tuple[str, str]]:
    """Return the headers with which a record has the name that it had; one from quarantine goes a way of its own besides."""
    came = {key: value.decode(errors="replace") for key, value in message.headers() or () if value is not None}
    place = f"{message.partition()}:{message.offset()}"
    if quarantined:
        # the name of the record in its path: whatever is put in again before or after it, on this path it is the only one
        came["path"] = f"{came['path']}/{AGAIN}:{came['origin']}"
        came[AGAIN] = origins.raw(came["origin"])
        came["origin"] = came["origin"].removesuffix(f"&{str(message.topic()).removesuffix(QUARANTINE)}")  # its reader calls it so again
    if outside:
        return [(AGAIN, came[AGAIN]), ("path", came["path"])] if AGAIN in came and "path" in came else [(AGAIN, came.get(AGAIN, place))]
    kept = [(key, came[key]) for key in ("origin", "path", "t0") if key in came]
    return [*kept, ("from", f"{message.topic()}/{place}"), ("by", BY)]


@dataclass(frozen=True)
class Target:
    """What has to be known of the stream that records are put into."""

    outside: bool
    """Its records come from outside, without lineage."""
    partitions: int
    bad: frozenset[tuple[str, int]]
    """Its records, by `topic/partition` and offset, that are in quarantine.

    They are put in again from there only: with others of their stream they would be new on a second path, and be counted twice.
    """


def target(streams: Streams, stream: Stream) -> Target:
    """Look at a stream, and at its quarantine."""
    known = streams.bounds([stream.quarantine])
    starts = {split(partition): offset for partition, offset in known.oldest.items()}
    bad = frozenset((seen.out.partition, seen.out.offset) for seen in streams.read(starts, known.ends))
    return Target(stream.columns is None, streams.partitions(stream.name), bad)


class Player:
    """Plays one replay."""

    def __init__(self, kafka: str, book: Book, replay: Replay, into: Target) -> None:
        """Prepare; nothing is read yet."""
        self._book = book
        self._replay = replay
        self._into = into
        self._producer = Producer(
            {**brokers(kafka).client, "acks": "all", "enable.idempotence": True, "message.max.bytes": 4 * 1024 * 1024, "log_level": 2}
        )
        quietly = {"group.id": LOOKERS, "enable.auto.commit": False, "log_level": 2}
        # what is not kept any more must not be passed over in silence
        self._consumer = Consumer({**brokers(kafka).client, "auto.offset.reset": "error", **quietly})
        self._failed: list[str] = []
        self._put = 0

    def play(self, stop: threading.Event, *, quiet: bool) -> int:
        """Put what is left until it is done or `stop`; return how many were put."""
        replay, begun = self._replay, time.monotonic()
        self._consumer.assign([TopicPartition(*split(partition), offset) for partition, offset in replay.open.items()])
        reached = dict(replay.done)
        saved = said = heard = begun
        while any(reached[partition] < end for partition, end in replay.ends.items()) and not stop.is_set():
            now = time.monotonic()
            due = int((now - begun) * replay.rate) + 1 - self._put
            if due <= 0:
                stop.wait(min(0.05, 1 / replay.rate))
                heard = now
                continue
            for message in self._consumer.consume(min(due, 1000), timeout=0.2):
                self._again(message, reached)
                heard = now
            if now > heard + SECONDS:
                message = f"Kafka gives no more of {replay.source}; go on with --resume {replay.number}"
                raise ReplayError(message)
            if now > saved + SAVE_SECONDS:
                self._save(reached)
                saved = now
            if now > said + SAY_SECONDS and not quiet:
                sys.stderr.write(f"  {self._put} put, {replay.left} left, about {replay.left / replay.rate:.0f} s\n")
                said = now
        self._save(reached)
        self._consumer.close()
        return self._put

    def _again(self, message: Message, reached: dict[str, int]) -> None:
        replay = self._replay
        if message.error() is not None:
            said = f"{replay.source} cannot be read: {message.error()}; go on with --resume {replay.number}"
            raise ReplayError(said)
        partition, offset = name(str(message.topic()), message.partition() or 0), message.offset() or 0
        reached[partition] = min(offset + 1, replay.ends[partition])
        if offset >= replay.ends[partition] or (partition, offset) in self._into.bad:
            return
        self._put += 1
        self._producer.produce(
            replay.stream,
            key=message.key(),
            value=message.value(),
            partition=self._partition(message) % self._into.partitions,
            headers=headers(message, outside=self._into.outside, quarantined=replay.source != replay.stream),
            on_delivery=self._taken,
        )
        self._producer.poll(0)

    def _partition(self, message: Message) -> int:
        """Return the partition of the stream in which a record was."""
        seen = parse(message) if self._replay.source != self._replay.stream else None
        return (message.partition() or 0) if seen is None else split(seen.out.partition)[1]

    def _taken(self, error: object, _message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _save(self, reached: dict[str, int]) -> None:
        """Remember how far it is, once Kafka has all of it."""
        left = self._producer.flush(SECONDS)
        if left or self._failed:
            why = f" ({self._failed[0]})" if self._failed else ""
            message = f"Kafka has not taken {left + len(self._failed)} records{why}; go on with --resume {self._replay.number}"
            raise ReplayError(message)
        self._replay.done = dict(reached)
        self._book.save(self._replay)
