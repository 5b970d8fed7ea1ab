"""Reads Kafka from the driver itself, beside Spark.

Examples: the ends of streams, the last records of an output, times and keys of single records.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sluice.api import lineage_header, origins
from sluice.kafka.positions import OutputRecord
from sluice_ops.model.kafka_access import LOOKERS
from sluice_ops.site.brokers import brokers

SECONDS = 10.0
"""The longest wait for one answer of Kafka."""


@dataclass(frozen=True)
class Bounds:
    """The oldest offset and the end of each partition, by `stream/partition`."""

    oldest: dict[str, int]
    ends: dict[str, int]


@dataclass(frozen=True)
class Seen:
    """An output record with its lineage."""

    out: OutputRecord
    arrived: int | None
    """When the raw record arrived. Unit: epoch ms."""
    place: str = ""
    """Where the output record is, `stream/partition:offset`."""
    origin: str = ""
    """The raw record from which this record derives."""

    def is_before(self, ends: dict[str, int]) -> bool:
        """Tell whether the record lies before these ends."""
        partition, _, offset = self.place.rpartition(":")
        return int(offset) < ends.get(partition, 0)


class StreamError(Exception):
    """Kafka does not answer, or a stream does not exist."""


class NoStreamError(StreamError):
    """A stream does not exist. Permanent."""


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition, as in receipts: `stream/partition`."""
    return f"{topic}/{partition}"


def topic_and_number(place: str) -> tuple[str, int]:
    """Return the topic and number of a partition's name."""
    topic, _, partition = place.rpartition("/")
    return topic, int(partition)


def _place_of(message: Message) -> str:
    return partition_name(str(message.topic()), message.partition() or 0)


class Streams:
    """A consumer without a group, for reading single parts of streams.

    Not thread-safe: each thread needs its own.
    """

    def __init__(self, bootstrap: str, *, committed: bool = True) -> None:
        """Prepare a consumer, without a request to Kafka.

        With `committed`, a stream ends where its first open transaction begins. Otherwise, the
        stream also contains records that are not committed.
        """
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                **brokers(bootstrap).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # If retention has deleted an offset, reading continues with the oldest record.
                # Kafka's default would continue with the end.
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        self._consumer.close()

    def renew(self) -> None:
        """Forget the numbers of partitions, because partitions may have been added."""
        self._counts.clear()

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a stream, as of the first request since `renew`.

        NoStreamError if the stream does not exist, StreamError if Kafka does not answer.
        """
        if topic not in self._counts:
            try:
                metadata = self._consumer.list_topics(topic, timeout=SECONDS).topics[topic]
            except KafkaException as error:
                message = f"Kafka at {self._bootstrap} does not answer: {error.args[0].str()}"
                raise StreamError(message) from error
            if metadata.error is not None or not metadata.partitions:
                message = f'stream "{topic}" is not in Kafka at {self._bootstrap}; run `sluice publish`'
                raise NoStreamError(message)
            self._counts[topic] = len(metadata.partitions)
        return self._counts[topic]

    def places(self, topics: Sequence[str]) -> list[str]:
        """Return the partitions' names, as of the first request since `renew`."""
        return [partition_name(topic, partition) for topic, partition in self._all(topics)]

    def bounds(self, topics: Sequence[str]) -> Bounds:
        """Return the oldest offsets and the ends of these streams.

        StreamError if Kafka does not answer.
        """
        oldest: dict[str, int] = {}
        ends: dict[str, int] = {}
        for topic, partition in self._all(topics):
            try:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=SECONDS
                )
            except KafkaException as error:
                message = f"Kafka at {self._bootstrap} does not answer: {error.args[0].str()}"
                raise StreamError(message) from error
            oldest[partition_name(topic, partition)], ends[partition_name(topic, partition)] = low, high
        return Bounds(oldest, ends)

    def at(self, topics: Sequence[str], at: int, ends: dict[str, int]) -> dict[str, int]:
        """Return each partition's first offset since time `at` (epoch ms); its end if none."""
        wanted = [TopicPartition(topic, partition, at) for topic, partition in self._all(topics)]
        offsets = {
            partition_name(item.topic, item.partition): item.offset
            for item in self._consumer.offsets_for_times(wanted, timeout=SECONDS)
        }
        return {place: offset if offset >= 0 else ends[place] for place, offset in offsets.items()}

    def times_at(self, places: dict[str, int]) -> dict[str, int]:
        """Return the times (epoch ms) of the first existing records from these offsets on."""
        return {_place_of(message): message.timestamp()[1] for message in self._first(places, 1)}

    def keys(self, places: dict[str, int], count: int) -> dict[str, list[bytes | None]]:
        """Return the keys of about `count` records of each partition, from these offsets on."""
        keys: dict[str, list[bytes | None]] = {}
        for message in self._first(places, count):
            keys.setdefault(_place_of(message), []).append(message.key())
        return keys

    def _first(self, places: dict[str, int], count: int) -> Iterator[Message]:
        """Yield at most `count` existing records of each partition from its offset on.

        Stop after SECONDS, even if records are missing.
        """
        left = dict.fromkeys(places, count)
        self._consumer.assign(
            [TopicPartition(*topic_and_number(place), offset) for place, offset in places.items()]
        )
        deadline = time.monotonic() + SECONDS
        while left and time.monotonic() < deadline:
            for message in self._consumer.consume(count, timeout=0.2):
                place = _place_of(message)
                if message.error() is not None:
                    left.pop(place, None)
                elif place in left and (message.offset() or 0) >= places[place]:
                    yield message
                    left[place] -= 1
                    if not left[place]:
                        del left[place]
        self._consumer.unassign()

    def next_records(self, places: Mapping[str, int], count: int) -> Iterator[Message]:
        """Yield the next `count` records of each partition from its offset on.

        At the end of a partition, fewer. StreamError if Kafka fails.
        """
        left = {topic_and_number(place): [offset, count] for place, offset in places.items()}
        self._consumer.assign([TopicPartition(*key, offset) for key, (offset, _) in left.items()])
        deadline = time.monotonic() + SECONDS
        try:
            while left:
                for message in self._consumer.consume(1000, timeout=0.2):
                    key = (str(message.topic()), message.partition() or 0)
                    if self._is_end(message):
                        left.pop(key, None)
                    elif message.error() is None and key in left and (message.offset() or 0) >= left[key][0]:
                        yield message
                        left[key][1] -= 1
                        if not left[key][1]:
                            del left[key]
                if left and time.monotonic() > deadline:
                    places_left = ", ".join(partition_name(*key) for key in sorted(left))
                    text = (
                        f"Kafka at {self._bootstrap} returned no records of {places_left} in {SECONDS:.0f} s"
                    )
                    raise StreamError(text)
        finally:
            self._consumer.unassign()

    def last(self, topics: Sequence[str], ends: dict[str, int], before: int = 1) -> list[Seen]:
        """Return those of the last `before` records of each partition that have a lineage."""
        starts = {
            (topic, partition): max(0, ends[partition_name(topic, partition)] - before)
            for topic, partition in self._all(topics)
        }
        return list(self.read(starts, ends))

    def since(self, topics: Sequence[str], ends: dict[str, int], at: int) -> Iterator[Seen]:
        """Yield the records with a lineage that were written since time `at` (epoch ms).

        The timestamps in the stream decide.
        """
        starts = {topic_and_number(place): offset for place, offset in self.at(topics, at, ends).items()}
        yield from self.read(starts, ends)

    def read(self, starts: dict[tuple[str, int], int], ends: dict[str, int]) -> Iterator[Seen]:
        """Yield the records from `starts` to before `ends` that have a lineage."""
        for message in self._through(starts, ends):
            seen = parse(message)
            if seen is not None:
                yield seen

    def messages(self, place: str, first: int, end: int) -> Iterator[Message]:
        """Yield the existing records of a partition from `first` to before `end`."""
        yield from self._through({topic_and_number(place): first}, {place: end})

    def offsets_with_records(self, place: str, first: int, end: int) -> set[int]:
        """Return the offsets of a partition, from `first` to before `end`, that hold a record.

        Other offsets hold transaction markers, or were compacted away. Offsets that retention has
        deleted count as records, because nothing is known about them.
        """
        topic, partition = topic_and_number(place)
        oldest = self.bounds([topic]).oldest[place]
        messages = self._through({(topic, partition): max(first, oldest)}, {place: end})
        return set(range(first, min(end, oldest))) | {message.offset() or 0 for message in messages}

    def _through(self, starts: dict[tuple[str, int], int], ends: dict[str, int]) -> Iterator[Message]:
        """Yield all existing records from `starts` to before `ends`.

        If a stream is recreated meanwhile, the consumer reads its beginning; those records are left
        out. StreamError if Kafka fails.
        """
        left = {key for key, offset in starts.items() if offset < ends[partition_name(*key)]}
        if not left:
            return
        self._consumer.assign(
            [TopicPartition(topic, partition, starts[topic, partition]) for topic, partition in left]
        )
        deadline = time.monotonic() + SECONDS
        while left:
            messages = self._consumer.consume(1000, timeout=0.2)
            if messages:
                deadline = time.monotonic() + SECONDS
            elif time.monotonic() > deadline:
                places_left = ", ".join(partition_name(*key) for key in sorted(left))
                text = f"Kafka at {self._bootstrap} returned no records of {places_left} in {SECONDS:.0f} s"
                raise StreamError(text)
            for message in messages:
                key = (message.topic(), message.partition())
                if self._is_end(message) or (
                    message.error() is None and message.offset() >= ends[partition_name(*key)] - 1
                ):
                    left.discard(key)
                if message.error() is None and starts[key] <= message.offset() < ends[partition_name(*key)]:
                    yield message
        self._consumer.unassign()

    def _is_end(self, message: Message) -> bool:
        """Tell whether the message marks a partition's end.

        StreamError for any other error of a partition, because records after the error would be
        missing.
        """
        error = message.error()
        if error is None or message.topic() is None:
            return False
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 — its only name
            text = f"reading {_place_of(message)} in Kafka at {self._bootstrap} failed: {error.str()}"
            raise StreamError(text)
        return True

    def _all(self, topics: Sequence[str]) -> list[tuple[str, int]]:
        return [(topic, partition) for topic in topics for partition in range(self.partitions(topic))]


def arrived(message: Message, *, outside: bool) -> int:
    """Return when a record arrived in the pipeline (epoch ms), as `lineage.incoming` reads it.

    A record from `outside` arrives in its stream; the lineage of another one has the time, `t0`.
    """
    t0 = "" if outside else lineage_header.texts(message.headers()).get("t0", "")
    return int(t0) if t0.isdigit() else int(message.timestamp()[1])


def origin(message: Message, inputs: Sequence[str], *, outside: bool) -> str:
    """Return the origin that a tier with these inputs gives a record (see `lineage.incoming`)."""
    stream, partition, offset = str(message.topic()), message.partition() or 0, message.offset() or 0
    if outside:
        return origins.raw_origin(inputs, stream, partition, offset)
    known = lineage_header.texts(message.headers()).get("origin", f"{partition}:{offset}")
    return origins.origin_in_tier(inputs, stream, known)


def parse(message: Message) -> Seen | None:
    """Return an output record with its lineage; None for a message without one."""
    headers = lineage_header.texts(message.headers())
    source, by = headers.get("from"), headers.get("by")
    if source is None or by is None:
        return None
    partition, _, offset = source.rpartition(":")
    if not partition or not offset.isdigit():
        return None
    arrived, acked = headers.get("t0", ""), headers.get("acked", "")
    out = OutputRecord(
        by, partition, int(offset), message.timestamp()[1], int(acked) if acked.isdigit() else None
    )
    place = f"{_place_of(message)}:{message.offset()}"
    return Seen(out, int(arrived) if arrived.isdigit() else None, place, headers.get("origin", ""))
