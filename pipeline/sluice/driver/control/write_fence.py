"""Who may write a tier's streams, as Kafka's control topic says it (decision record 0047): a run claims its right there before it begins.

Called by the engine of a tier that writes streams. Executors follow the topic themselves (`WriterFence.java`) and end with their right.
"""

import time
from typing import TYPE_CHECKING, Protocol

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pydantic import ValidationError

from sluice.kafka import producer
from sluice.kafka.reader import SECONDS, StreamError
from sluice.sinks.ledger import FencedError
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model.incarnation import Directive, directive
from sluice_ops.model.kafka_access import CONTROL_TOPIC, LOOKERS
from sluice_ops.model.stream_writers import Writers, claim, disagrees, writers_of
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from sluice.driver.control.control_channel import Follow

log = structlog.get_logger()

AGAIN_SECONDS = 60.0
"""The owner repeats the value so often, so that a topic that was emptied or made anew has it again."""
WAIT_MS = 2500
"""So long a broker keeps a request while there is nothing new; it answers at once when there is."""
ASK_SECONDS = 2.0
"""At most so often the owner asks ZooKeeper whether the topic's value, which is later than its own record, is true."""
LEAVE_SECONDS = 5.0
"""So long an incarnation that ZooKeeper reaches has to stop in order, before the owner leaves it out of the topic."""
BEGINNING = TopicPartition(CONTROL_TOPIC, 0, 0)
ABSENT = f'stream "{CONTROL_TOPIC}" was not in Kafka when this run began; run `python -m sluice.commands.publish`, then hand the tier over'


class WriterFence(Protocol):
    """The right of one incarnation to write its tier's streams."""

    def claim(self) -> None:
        """Write the owner record into the topic, before a run begins; FencedError where another one has the right."""

    def look(self) -> None:
        """Read what has come to the topic, without waiting; FencedError where the right is over."""

    def options(self) -> dict[str, str]:
        """Return the options of Kafka's sink that have executors end with the right."""

    def sole_seconds(self) -> float | None:
        """Return for how long the topic has said that nobody else may write. Unit: seconds. None: the run has no claim there."""


class Unfenced:
    """An engine that no other one runs beside."""

    def claim(self) -> None:
        """Nobody else claims."""

    def look(self) -> None:
        """Nobody else claims."""

    def options(self) -> dict[str, str]:
        """Executors follow nothing."""
        return {}

    def sole_seconds(self) -> float | None:
        """Nobody else ever had the right."""
        return float("inf")


class ControlTopic:
    """The right as the control topic has it."""

    def __init__(self, kafka: str, tier: str, follow: "Follow") -> None:
        """Connect later, with the first claim."""
        self._kafka = kafka
        self._tier = tier
        self._follow = follow
        self._consumer: Consumer | None = None
        self._producer = producer.producer(kafka)
        self._heard: Writers | None = None
        self._claim: Writers | None = None
        self._next = 0
        """The offset after the last record that was read since the topic was opened."""
        self._sole_since: float | None = None
        self._repeat_at = self._ask_at = 0.0
        self._changed_at: float | None = None
        """Since when the owner record has had other members than the topic."""
        self._came = False
        """Whether anything for this tier has come since it was repeated last."""

    def claim(self) -> None:
        """Write the owner record into the topic, before a run begins; FencedError where another one has the right."""
        begun = time.monotonic()
        if not self._read_anew():
            if self._claim is None:
                log.warning("nothing ends this run's right to write while ZooKeeper is away", reason=ABSENT)
            return
        record, term = self._follow.record, None if self._claim is None else self._claim.term
        mine = claim(self._heard, record, term=term, fresh=False)
        if mine is None or mine == self._heard:
            mine = self._confirmed(mine, term)
        if self._heard is None or mine.order > self._heard.order:
            lacking = producer.put(self._producer, [self._record(mine)])
            if lacking is not None:
                message = f'Kafka does not take a record of stream "{CONTROL_TOPIC}": {lacking.why}'
                raise StreamError(message)
            self._hear(mine)
            took = round(time.monotonic() - begun, 3)
            log.info(
                "claimed the right to write",
                term=mine.term,
                epoch=mine.epoch,
                members=mine.members,
                seconds=took,
            )
        self._claim, self._repeat_at = mine, time.monotonic() + AGAIN_SECONDS

    def _confirmed(self, mine: Writers | None, term: int | None) -> Writers:
        """Ask ZooKeeper where the topic has a value as high or higher: that is another run's, or one of a tree that was lost."""
        record = self._follow.confirmed()
        if record is None:
            if mine is not None:
                return mine
            if self._claim is None or (
                self._heard is not None and not self._heard.end(self._claim, self._follow.me)
            ):
                message = f'stream "{CONTROL_TOPIC}" has a later owner record, and ZooKeeper, which could confirm this writer, is away'
                raise ChannelAwayError(message)
            raise self._over()
        fresh = claim(self._heard, record, term=term, fresh=True)
        if (
            fresh is None or directive(record, self._follow.me) is not Directive.RUN
        ):  # never None with a record that is fresh
            raise self._over()
        return fresh

    def look(self) -> None:
        """Read what has come to the topic, without waiting; FencedError where the right is over. The owner repeats what it has said."""
        if self._consumer is None or self._claim is None:
            return
        self._take(self._consumer, 0.0)
        if self._heard is not None and (
            self._heard.end(self._claim, self._follow.me) or self._is_anothers(self._heard)
        ):
            self.claim()
        self._repeat()

    def _is_anothers(self, heard: Writers) -> bool:
        """Tell whether the topic has a value of a tree that was lost, which may name this run's number; the owner asks ZooKeeper."""
        now = time.monotonic()
        if not self._follow.owns or self._claim is None or now < self._ask_at:
            return False
        if not disagrees(heard, writers_of(self._follow.record, self._claim.term)):
            return False
        self._ask_at = now + ASK_SECONDS
        record = self._follow.confirmed()
        return record is not None and disagrees(heard, writers_of(record, self._claim.term))

    def options(self) -> dict[str, str]:
        """Return the options of Kafka's sink that have executors end with the right."""
        if self._claim is None:
            return {}
        return {
            "kafka.sluice.topic": CONTROL_TOPIC,
            "kafka.sluice.tier": self._tier,
            "kafka.sluice.incarnation": str(self._follow.me),
            "kafka.sluice.term": str(self._claim.term),
            "kafka.sluice.epoch": str(self._claim.epoch),
        }

    def sole_seconds(self) -> float | None:
        """Return for how long the topic has said that nobody else may write."""
        if self._claim is None:
            return None
        return 0.0 if self._sole_since is None else time.monotonic() - self._sole_since

    def _repeat(self) -> None:
        """Have the topic say what the owner record says: soon where the members are others, else now and then."""
        now = time.monotonic()
        if not self._follow.owns or self._claim is None or self._heard is None:
            return
        mine = writers_of(self._follow.record, self._claim.term)
        changed = mine.order > self._heard.order and mine.members != self._heard.members
        self._changed_at = (self._changed_at or now) if changed else None
        if now < (self._repeat_at if self._changed_at is None else self._changed_at + LEAVE_SECONDS):
            return
        if not changed and not self._came:
            log.warning(
                "the control topic does not give what was put there; it is read anew", stream=CONTROL_TOPIC
            )
            self._open().assign([BEGINNING])
        self._repeat_at, self._came = now + AGAIN_SECONDS, False
        record = self._record(max(mine, self._heard, key=lambda each: each.order))
        try:
            self._producer.produce(
                record.stream, key=record.key, value=record.value, partition=record.partition
            )
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            log.info("the right to write could not be repeated; it is tried again", error=str(error))
        if changed:
            self._hear(mine)

    def _record(self, value: Writers) -> producer.Record:
        return producer.Record(CONTROL_TOPIC, 0, self._tier.encode(), value.model_dump_json().encode(), {})

    def _read_anew(self) -> bool:
        """Read the topic from its beginning to its end; return whether it is there."""
        consumer = self._open()
        try:
            metadata = consumer.list_topics(CONTROL_TOPIC, timeout=SECONDS).topics[CONTROL_TOPIC]
            if metadata.error is not None or not metadata.partitions:
                consumer.assign([BEGINNING])
                return False
            # before it reads: a broker answers a connection in order, and this after a fetch that waits for news, for WAIT_MS
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
                # what a newer version has added does not say who may write
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
        if value.members != (self._follow.me,):
            self._sole_since = None
        elif self._sole_since is None:
            self._sole_since = time.monotonic()

    def _over(self) -> FencedError:
        by = self._heard
        said = (
            "other writers"
            if by is None
            else f"{', '.join(map(str, by.members)) or 'nobody'} by the owner record of epoch {by.epoch}"
        )
        return FencedError(
            f'stream "{CONTROL_TOPIC}" names {said} as writers of tier {self._tier}; incarnation {self._follow.me} stops'
        )
