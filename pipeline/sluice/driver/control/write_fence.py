"""The right to write a tier's streams, as Kafka's control topic has it (decision 47).

A run of a tier that writes streams claims its right there before it begins. Executors follow the
topic themselves (`WriterFence.java`), and end when they lose the right.
"""

import time
from typing import TYPE_CHECKING, Protocol

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pydantic import ValidationError

from sluice.kafka import producer
from sluice.kafka.reader import SECONDS, StreamError
from sluice.sinks.fence import FencedError
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.incarnation import Directive, directive
from sluice_ops.model.kafka_access import CONTROL_TOPIC, LOOKERS
from sluice_ops.model.stream_writers import Writers, claim, disagrees, writers_of
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from sluice.driver.control.control_channel import ChannelFollower

log = structlog.get_logger()

REPEAT_SECONDS = 60.0
"""Time between two repetitions by the owner, so that a topic that was emptied or recreated has the
value again.
"""
WAIT_MS = 2500
"""How long a broker keeps a request open while the topic has nothing new."""
ASK_SECONDS = 2.0
"""The shortest time between two questions to ZooKeeper whether a later value of the topic
is true.
"""
LEAVE_SECONDS = 5.0
"""The time that an incarnation has to stop in order, before the owner leaves it out of the
topic.
"""
BEGINNING = TopicPartition(CONTROL_TOPIC, 0, 0)
ABSENT = (
    f'stream "{CONTROL_TOPIC}" was not in Kafka when this run began; '
    "run `sluice publish`, then hand the tier over"
)


class WriterFence(Protocol):
    """The right of one incarnation to write its tier's streams."""

    def claim(self) -> None:
        """Write the owner record into the topic before a run begins; FencedError if another run has
        the right.
        """

    def check(self) -> None:
        """Read what has come to the topic, without waiting; FencedError if this run has lost the
        right.
        """

    def options(self) -> dict[str, str]:
        """Return the options of Kafka's sink that make executors end when they lose the right."""

    def sole_seconds(self) -> float | None:
        """Return how long the topic has named this writer alone; None if the run has no claim
        there.
        """


class Unfenced:
    """The right of an engine without other incarnations: it never ends."""

    def claim(self) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""

    def options(self) -> dict[str, str]:
        """Return nothing: executors follow no topic."""
        return {}

    def sole_seconds(self) -> float | None:
        """Return infinity."""
        return float("inf")


class ControlTopic:
    """The right to write as the control topic has it."""

    def __init__(self, kafka: str, tier: str, follower: "ChannelFollower") -> None:
        """Prepare; the first claim connects."""
        self._kafka = kafka
        self._tier = tier
        self._follower = follower
        self._consumer: Consumer | None = None
        self._producer = producer.producer(kafka)
        self._heard: Writers | None = None
        self._claim: Writers | None = None
        self._next = 0
        """The offset after the last record that was read since the topic was opened."""
        self._sole_since: float | None = None
        self._repeat_at = self._ask_at = 0.0
        self._changed_at: float | None = None
        """Since when the owner record names other writers than the topic."""
        self._came = False
        """Whether a value of this tier has come since the last repetition."""

    def claim(self) -> None:
        """Write the owner record into the topic before a run begins; FencedError if another run has
        the right.
        """
        begun = time.monotonic()
        if not self._read_anew():
            if self._claim is None:
                log.warning(
                    "this run cannot be fenced while ZooKeeper does not answer: the control topic is missing",
                    reason=ABSENT,
                )
            return
        record, term = self._follower.record, None if self._claim is None else self._claim.term
        mine = claim(self._heard, record, term=term, fresh=False)
        if mine is None or mine == self._heard:
            mine = self._confirmed(mine, term)
        if self._heard is None or mine.order > self._heard.order:
            refused = producer.put(self._producer, [self._record(mine)])
            if refused is not None:
                message = f'Kafka does not take a record of stream "{CONTROL_TOPIC}": {refused.why}'
                raise StreamError(message)
            self._hear(mine)
            took = round(time.monotonic() - begun, 3)
            log.info(
                "the driver has claimed the right to write",
                term=mine.term,
                epoch=mine.epoch,
                members=mine.members,
                seconds=took,
            )
        self._claim, self._repeat_at = mine, time.monotonic() + REPEAT_SECONDS

    def _confirmed(self, mine: Writers | None, term: int | None) -> Writers:
        """Confirm the claim in ZooKeeper, because the topic has a value as high or higher.

        That value is another run's, or it comes from a ZooKeeper tree that was lost.
        """
        record = self._follower.confirmed_owner_record()
        if record is None:
            if mine is not None:
                return mine
            if self._claim is None or (
                self._heard is not None and not self._heard.end(self._claim, self._follower.incarnation)
            ):
                message = (
                    f'stream "{CONTROL_TOPIC}" has a later owner record, and ZooKeeper, which could '
                    "confirm this writer, is away"
                )
                raise ChannelAwayError(message)
            raise self._over()
        fresh = claim(self._heard, record, term=term, fresh=True)
        if (
            fresh is None or directive(record, self._follower.incarnation) is not Directive.RUN
        ):  # `fresh` is never None here
            raise self._over()
        return fresh

    def check(self) -> None:
        """Read what has come to the topic, without waiting; FencedError if the right is lost.

        The owner repeats its value.
        """
        if self._consumer is None or self._claim is None:
            return
        self._take(self._consumer, 0.0)
        if self._heard is not None and (
            self._heard.end(self._claim, self._follower.incarnation) or self._is_anothers(self._heard)
        ):
            self.claim()
        self._repeat()

    def _is_anothers(self, heard: Writers) -> bool:
        """Tell whether the topic's value is from a lost ZooKeeper tree, which may name this run's
        number. The owner asks ZooKeeper.
        """
        now = time.monotonic()
        if not self._follower.owns or self._claim is None or now < self._ask_at:
            return False
        if not disagrees(heard, writers_of(self._follower.record, self._claim.term)):
            return False
        self._ask_at = now + ASK_SECONDS
        record = self._follower.confirmed_owner_record()
        return record is not None and disagrees(heard, writers_of(record, self._claim.term))

    def options(self) -> dict[str, str]:
        """Return the options of Kafka's sink that make executors end when they lose the right."""
        if self._claim is None:
            return {}
        return {
            "kafka.sluice.topic": CONTROL_TOPIC,
            "kafka.sluice.tier": self._tier,
            "kafka.sluice.incarnation": str(self._follower.incarnation),
            "kafka.sluice.term": str(self._claim.term),
            "kafka.sluice.epoch": str(self._claim.epoch),
        }

    def sole_seconds(self) -> float | None:
        """Return how long the topic has named this writer alone."""
        if self._claim is None:
            return None
        return 0.0 if self._sole_since is None else time.monotonic() - self._sole_since

    def _repeat(self) -> None:
        """Write the owner record's writers to the topic: after LEAVE_SECONDS if they changed, else
        every REPEAT_SECONDS.
        """
        now = time.monotonic()
        if not self._follower.owns or self._claim is None or self._heard is None:
            return
        mine = writers_of(self._follower.record, self._claim.term)
        changed = mine.order > self._heard.order and mine.members != self._heard.members
        self._changed_at = (self._changed_at or now) if changed else None
        if now < (self._repeat_at if self._changed_at is None else self._changed_at + LEAVE_SECONDS):
            return
        if not changed and not self._came:
            log.warning(
                "the control topic lacks the driver's last record; the driver reads the topic from the "
                "beginning and writes again",
                stream=CONTROL_TOPIC,
            )
            self._open().assign([BEGINNING])
        self._repeat_at, self._came = now + REPEAT_SECONDS, False
        record = self._record(max(mine, self._heard, key=lambda each: each.order))
        try:
            self._producer.produce(
                record.stream, key=record.key, value=record.value, partition=record.partition
            )
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.info(
                "the right to write could not be repeated in the control topic; it is retried",
                error=str(error),
            )
        if changed:
            self._hear(mine)

    def _record(self, value: Writers) -> producer.Record:
        return producer.Record(CONTROL_TOPIC, 0, self._tier.encode(), value.model_dump_json().encode(), {})

    def _read_anew(self) -> bool:
        """Read the topic from its beginning to its end; return whether the topic exists."""
        consumer = self._open()
        try:
            metadata = consumer.list_topics(CONTROL_TOPIC, timeout=SECONDS).topics[CONTROL_TOPIC]
            if metadata.error is not None or not metadata.partitions:
                consumer.assign([BEGINNING])
                return False
            # asked before the fetch: a broker answers one request after the other, and a fetch may
            # wait WAIT_MS
            oldest, end = consumer.get_watermark_offsets(BEGINNING, timeout=SECONDS)
            consumer.assign([BEGINNING])
            deadline = time.monotonic() + SECONDS
            while oldest < end and self._next < end:
                self._take(consumer, 0.1)
                if time.monotonic() > deadline:
                    message = f'Kafka at {self._kafka} stopped giving stream "{CONTROL_TOPIC}"'
                    raise StreamError(message)
        except KafkaException as error:
            message = f"Kafka at {self._kafka} does not answer: {error.args[0].str()}"
            raise StreamError(message) from error
        return True

    def _open(self) -> Consumer:
        if self._consumer is not None:
            self._consumer.close()
        self._next = 0
        self._consumer = Consumer(
            {
                **brokers(self._kafka).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": WAIT_MS,
                "log_level": 2,
            }
        )
        return self._consumer

    def _take(self, consumer: Consumer, seconds: float) -> None:
        for message in consumer.consume(500, timeout=seconds):
            if message.error() is not None:
                continue
            self._next = (message.offset() or 0) + 1
            if message.key() != self._tier.encode() or message.value() is None:
                continue
            try:
                # fields that a newer version added do not decide about the right to write
                self._hear(Writers.model_validate_json(message.value() or b"", extra="ignore"))
            except ValidationError as error:
                log.warning(
                    "a record of the control topic cannot be read", offset=message.offset(), error=str(error)
                )

    def _hear(self, value: Writers) -> None:
        self._came = True
        if self._heard is not None and value.order < self._heard.order:
            return
        self._heard = value
        if value.members != (self._follower.incarnation,):
            self._sole_since = None
        elif self._sole_since is None:
            self._sole_since = time.monotonic()

    def _over(self) -> FencedError:
        heard = self._heard
        writers = (
            "other writers"
            if heard is None
            else f"{', '.join(map(str, heard.members)) or 'nobody'} by the owner record of epoch "
            f"{heard.epoch}"
        )
        return FencedError(
            f'stream "{CONTROL_TOPIC}" names {writers} as writers of tier {self._tier}; '
            f"incarnation {self._follower.incarnation} stops"
        )
