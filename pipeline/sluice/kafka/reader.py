"""Reading Kafka from the driver itself, beside Spark: ends of streams, the tail of an output, the last record of each partition."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sluice.api import origins
from sluice.kafka.positions import PutOut
from sluice_ops.model.kafka_access import LOOKERS
from sluice_ops.site.brokers import brokers

SECONDS = 10.0
"""How long one question to Kafka may take."""


@dataclass(frozen=True)
class Bounds:
    """What a stream holds: by `stream/partition`, the oldest offset and the end."""

    oldest: dict[str, int]
    ends: dict[str, int]


@dataclass(frozen=True)
class Seen:
    """A record of an output with its lineage."""

    out: PutOut
    arrived: int | None
    """When the raw record arrived. Unit: epoch ms."""
    place: str = ""
    """Where it was read, `stream/partition:offset`."""
    origin: str = ""
    """The raw record that it goes back to."""

    def is_before(self, ends: dict[str, int]) -> bool:
        """Tell whether it was read before these ends."""
        partition, _, offset = self.place.rpartition(":")
        return int(offset) < ends.get(partition, 0)


class StreamError(Exception):
    """Kafka does not answer, or a stream is not there."""


class NoStreamError(StreamError):
    """A stream is not there. Permanent."""


def name(topic: str, partition: int) -> str:
    """Write a partition as everywhere in receipts."""
    return f"{topic}/{partition}"


def split(place: str) -> tuple[str, int]:
    """Return the topic and the number of a partition that `name` wrote."""
    topic, _, partition = place.rpartition("/")
    return topic, int(partition)


class Streams:
    """A consumer without a group, for looking. Not thread-safe: each thread has its own."""

    def __init__(self, bootstrap: str, *, committed: bool = True) -> None:
        """Prepare; nothing is asked yet. Streams end where the first open transaction begins, or behind what is not `committed`, too."""
        self._bootstrap = bootstrap
        self._consumer = Consumer(
            {
                **brokers(bootstrap).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",  # from what retention has taken on to what is left; the default would be its end
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def renew(self) -> None:
        """Ask anew how many partitions there are: somebody may have added some."""
        self._counts.clear()

    def partitions(self, topic: str) -> int:
        """Return how many partitions a stream has, as of the first question since `renew`."""
        if topic not in self._counts:
            try:
                found = self._consumer.list_topics(topic, timeout=SECONDS).topics[topic]
            except KafkaException as error:
                message = f"Kafka at {self._bootstrap} does not answer: {error.args[0].str()}"
                raise StreamError(message) from error
            if found.error is not None or not found.partitions:
                message = f'stream "{topic}" is not in Kafka at {self._bootstrap}; run `python -m sluice.commands.publish`'
                raise NoStreamError(message)
            self._counts[topic] = len(found.partitions)
        return self._counts[topic]

    def places(self, topics: Sequence[str]) -> list[str]:
        """Name the partitions of these streams, as of the first question since `renew`."""
        return [name(topic, partition) for topic, partition in self._all(topics)]

    def bounds(self, topics: Sequence[str]) -> Bounds:
        """Return oldest offsets and ends of these streams."""
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
            oldest[name(topic, partition)], ends[name(topic, partition)] = low, high
        return Bounds(oldest, ends)

    def at(self, topics: Sequence[str], at: int, ends: dict[str, int]) -> dict[str, int]:
        """Return the first offsets that were put since `at` (epoch ms); the `ends`, where there is none."""
        asked = [TopicPartition(topic, partition, at) for topic, partition in self._all(topics)]
        found = {
            name(item.topic, item.partition): item.offset
            for item in self._consumer.offsets_for_times(asked, timeout=SECONDS)
        }
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}

    def stamps(self, places: dict[str, int]) -> dict[str, int]:
        """Return when the record at each of these places was put there (epoch ms); where it is gone, the next one that is left."""
        return {
            name(str(each.topic()), each.partition() or 0): each.timestamp()[1]
            for each in self._first(places, 1)
        }

    def keys(self, places: dict[str, int], count: int) -> dict[str, list[bytes | None]]:
        """Return the keys of about so many records of each partition, from these places on."""
        found: dict[str, list[bytes | None]] = {}
        for each in self._first(places, count):
            found.setdefault(name(str(each.topic()), each.partition() or 0), []).append(each.key())
        return found

    def _first(self, places: dict[str, int], count: int) -> Iterator[Message]:
        """Yield at most `count` records of each partition from its place on, of those that are left; those that are there in time."""
        left = dict.fromkeys(places, count)
        self._consumer.assign([TopicPartition(*split(place), offset) for place, offset in places.items()])
        deadline = time.monotonic() + SECONDS
        while left and time.monotonic() < deadline:
            for message in self._consumer.consume(count, timeout=0.2):
                place = name(str(message.topic()), message.partition() or 0)
                if message.error() is not None:
                    left.pop(place, None)
                elif place in left and (message.offset() or 0) >= places[place]:
                    yield message
                    left[place] -= 1
                    if not left[place]:
                        del left[place]
        self._consumer.unassign()

    def ahead(self, places: Mapping[str, int], count: int) -> Iterator[Message]:
        """Yield the next records of each partition from its place on: `count`, or all that are there; StreamError if Kafka fails."""
        left = {split(place): [offset, count] for place, offset in places.items()}
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
                    text = f"Kafka at {self._bootstrap} does not give {', '.join(name(*key) for key in sorted(left))}"
                    raise StreamError(text)
        finally:
            self._consumer.unassign()

    def last(self, topics: Sequence[str], ends: dict[str, int], before: int = 1) -> list[Seen]:
        """Return the last records (`before` of each partition) of these streams."""
        starts = {
            (topic, partition): max(0, ends[name(topic, partition)] - before)
            for topic, partition in self._all(topics)
        }
        return list(self.read(starts, ends))

    def since(self, topics: Sequence[str], ends: dict[str, int], at: int) -> Iterator[Seen]:
        """Yield the records that were put out since `at` (epoch ms), by the stamps of the stream."""
        starts = {split(place): offset for place, offset in self.at(topics, at, ends).items()}
        yield from self.read(starts, ends)

    def read(self, starts: dict[tuple[str, int], int], ends: dict[str, int]) -> Iterator[Seen]:
        """Yield what lies from `starts` up to `ends`, of these partitions, and has a lineage."""
        for message in self._through(starts, ends):
            seen = parse(message)
            if seen is not None:
                yield seen

    def messages(self, place: str, first: int, end: int) -> Iterator[Message]:
        """Yield the records of a partition from `first` up to `end`, of those that are left."""
        yield from self._through({split(place): first}, {place: end})

    def held(self, place: str, first: int, end: int) -> set[int]:
        """Return which offsets of a partition, from `first` up to `end`, hold a record; others are marks of transactions, or taken out.

        Of those that are no longer there nobody knows: they are among them.
        """
        topic, partition = split(place)
        oldest = self.bounds([topic]).oldest[place]
        there = self._through({(topic, partition): max(first, oldest)}, {place: end})
        return set(range(first, min(end, oldest))) | {message.offset() or 0 for message in there}

    def _through(self, starts: dict[tuple[str, int], int], ends: dict[str, int]) -> Iterator[Message]:
        """Yield every record that lies from `starts` up to `ends`, of those that are left.

        A stream that was made anew meanwhile is read from its beginning: none of that was asked for.
        """
        left = {key for key, offset in starts.items() if offset < ends[name(*key)]}
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
                message = f"Kafka at {self._bootstrap} stopped giving {', '.join(name(*key) for key in sorted(left))}"
                raise StreamError(message)
            for message in messages:
                key = (message.topic(), message.partition())
                if self._is_end(message) or (
                    message.error() is None and message.offset() >= ends[name(*key)] - 1
                ):
                    left.discard(key)
                if message.error() is None and starts[key] <= message.offset() < ends[name(*key)]:
                    yield message
        self._consumer.unassign()

    def _is_end(self, message: Message) -> bool:
        """Tell whether a partition's end was reached; any other trouble with a partition is an error, for what follows would be missing."""
        error = message.error()
        if error is None or message.topic() is None:
            return False
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 — its only name
            text = f"Kafka at {self._bootstrap} does not give {name(str(message.topic()), message.partition() or 0)}: {error.str()}"
            raise StreamError(text)
        return True

    def _all(self, topics: Sequence[str]) -> list[tuple[str, int]]:
        return [(topic, partition) for topic in topics for partition in range(self.partitions(topic))]


def arrived(message: Message, *, outside: bool) -> int:
    """Return when a record arrived in the pipeline (epoch ms), as `lineage.incoming` reads it: one from `outside` arrives in its stream."""
    header = None if outside else next((value for key, value in message.headers() or () if key == "t0"), None)
    return int(header) if header is not None and header.isdigit() else int(message.timestamp()[1])


def origin(message: Message, inputs: Sequence[str], *, outside: bool) -> str:
    """Return how a tier with these inputs names a record, likewise."""
    stream, partition, offset = str(message.topic()), message.partition() or 0, message.offset() or 0
    if outside:
        return origins.raw_origin(inputs, stream, partition, offset)
    header = next((value for key, value in message.headers() or () if key == "origin"), None)
    return origins.origin_in_tier(
        inputs, stream, f"{partition}:{offset}" if header is None else header.decode(errors="replace")
    )


def parse(message: Message) -> Seen | None:
    """Read the lineage of an output record; None for any other."""
    headers = {
        key: value.decode(errors="replace") for key, value in message.headers() or () if value is not None
    }
    source, by = headers.get("from"), headers.get("by")
    if source is None or by is None:
        return None
    partition, _, offset = source.rpartition(":")
    if not partition or not offset.isdigit():
        return None
    arrived, acked = headers.get("t0", ""), headers.get("acked", "")
    out = PutOut(by, partition, int(offset), message.timestamp()[1], int(acked) if acked.isdigit() else None)
    place = f"{name(str(message.topic()), message.partition() or 0)}:{message.offset()}"
    return Seen(out, int(arrived) if arrived.isdigit() else None, place, headers.get("origin", ""))
