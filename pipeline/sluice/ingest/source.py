"""A source: writes records into a stream, and remembers them in the same transaction of Kafka.

The memory of all sources is the compacted stream `sluice-sources`. Each key is
`stream/name/part`. A source that starts takes its name over: Kafka aborts what an earlier process
left open and refuses its later writes. Then the source reads what was committed, so it neither
repeats nor omits a record.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from sluice.kafka.producer import TransactionalProducer
from sluice.kafka.reader import Streams, partition_name
from sluice_ops.model.kafka_access import LOOKERS, SOURCES, SOURCES_TOPIC
from sluice_ops.site.brokers import brokers

log = structlog.get_logger()

SECONDS = 10.0
"""The longest wait for one answer of Kafka; then the source asks again."""
TRANSACTION_MS = 10_000
"""Kafka aborts a transaction that is open for longer.

Until then, the records of a killed source hold back the readers of the stream.
"""
RECORD_BYTES = 1_000_000
"""The largest record. Streams from outside take 1 MiB with Kafka's own bytes."""
KEY_BYTES = 16 * 1024
"""The longest key of a record."""
MESSAGE_BYTES = 1024 * 1024
OWNER_SECONDS = 10.0
"""The longest wait for the name of the process that has taken the source over."""
OWNER = "owner"
"""The part of the memory that names the process that owns the source."""


class Record(NamedTuple):
    """A record from outside."""

    key: bytes | None
    value: bytes
    place: str
    """Where the record is from, after the source's name: the record's header `source`."""


def key_of(record: object, field: str | None) -> bytes | None:
    """Return the value of a field of a JSON record as the record's key; None if there is none."""
    value = record.get(field) if isinstance(record, dict) and field is not None else None
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode(errors="surrogatepass")


class SourceError(Exception):
    """The source cannot go on; the message says why. Another start may succeed."""


class TakenOverError(SourceError):
    """Another process owns the source now."""


class NotWrittenError(Exception):
    """Kafka has written nothing of a transaction. The source may try again."""


class Source:
    """One owner of a source's name. Not thread-safe."""

    def __init__(self, kafka: str, stream: str, name: str, *, stopped: Callable[[], bool]) -> None:
        """Prepare the source. `stopped` tells that a wait for Kafka shall end."""
        self._kafka, self._stream, self._name, self._stopped = kafka, stream, name, stopped
        self._owner = f"{socket.gethostname()}, process {os.getpid()}"
        self._identity = uuid.uuid4().hex
        self._refused: list[KafkaError] = []
        self._producer = TransactionalProducer(
            {
                **brokers(kafka).client,
                "transactional.id": f"{SOURCES}{stream}/{name}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "message.max.bytes": MESSAGE_BYTES,
                "log_level": 2,
            }
        )

    def take_over(self) -> dict[str, bytes]:
        """Become the owner of the source, and return its memory.

        Raise SourceError if Kafka refuses, or the stream does not exist.
        """
        with_streams = Streams(self._kafka, committed=False)
        try:
            with_streams.partitions(self._stream)
            with_streams.partitions(SOURCES_TOPIC)
        finally:
            with_streams.close()
        try:
            self._until_answered(lambda: self._producer.init_transactions(SECONDS))
        except KafkaException as error:
            message = f"Kafka refuses the source {self._name}: {error.args[0].str()}"
            raise SourceError(message) from error
        memory = self._read()
        owner = {"owner": self._owner, "identity": self._identity}
        try:
            self.write((), {OWNER: json.dumps(owner).encode()})
        except NotWrittenError as error:
            message = f"Kafka does not take the new owner of source {self._name}: {error}"
            raise SourceError(message) from error
        return memory

    def write(self, records: Sequence[Record], memory: Mapping[str, bytes | None]) -> None:
        """Write the records and remember `memory`, both or nothing. None forgets a part.

        Returns once Kafka has committed. NotWrittenError if nothing was written, TakenOverError if
        the source has another owner, SourceError if only another start can tell.
        """
        self._refused.clear()
        put = partial(self._producer.put, on_delivery=self._on_delivery)
        try:
            self._producer.begin_transaction()
            for record in records:
                headers = [("source", f"{self._name}/{record.place}".encode())]
                put(self._stream, record.key, record.value, headers=headers)
            for part, value in memory.items():
                put(SOURCES_TOPIC, f"{self._prefix}{part}".encode(), value)
            self._until_answered(lambda: self._producer.commit_transaction(SECONDS))
        except KafkaException as error:
            self._undo(error.args[0])

    @property
    def _prefix(self) -> str:
        return f"{self._stream}/{self._name}/"

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused.append(error)

    def _undo(self, error: KafkaError) -> None:
        """Abort the transaction; raise what its failure means."""
        cause = self._refused[0] if self._refused else error
        try:
            if not error.fatal():
                self._until_answered(lambda: self._producer.abort_transaction(SECONDS))
                raise NotWrittenError(cause.str())
        except KafkaException as abort_error:
            error = abort_error.args[0]
        if (owner := self._new_owner()) is not None:
            message = (
                f"source {self._name} of stream {self._stream} was taken over by {owner}; "
                "this process ends. Give each process a name of its own, or run one only"
            )
            raise TakenOverError(message)
        message = f"Kafka ended the transactions of source {self._name}: {error.str()}"
        raise SourceError(message)

    def _new_owner(self) -> str | None:
        """Return the other process that owns the source now; None if there is none within seconds.

        A process that takes over writes its name some time after Kafka has refused the others.
        """
        end = time.monotonic() + OWNER_SECONDS
        while True:
            owner = json.loads(self._read().get(OWNER, b"{}"))
            if owner.get("identity") not in {None, self._identity}:
                return str(owner["owner"])
            if time.monotonic() > end or self._stopped():
                return None
            time.sleep(0.2)

    def _until_answered(self, request: Callable[[], None]) -> None:
        """Send a request until Kafka has answered it."""
        is_late = False
        while True:
            try:
                return request()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if self._stopped():
                    message = f"Kafka has not answered source {self._name}: {error.args[0].str()}"
                    raise SourceError(message) from error
                if not is_late:
                    log.warning(
                        "Kafka does not answer; the source waits and asks again",
                        source=self._name,
                        reason=error.args[0].str(),
                    )
                is_late = True

    def _read(self) -> dict[str, bytes]:
        """Return the source's committed memory.

        Other sources share the stream. Waits until their open transactions have ended, because
        records of this source may lie after them.
        """
        place = partition_name(SOURCES_TOPIC, 0)
        streams = Streams(self._kafka, committed=False)
        try:
            end = streams.bounds([SOURCES_TOPIC]).ends[place]
        finally:
            streams.close()
        consumer = Consumer(
            {
                **brokers(self._kafka).client,
                "group.id": LOOKERS,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        memory: dict[str, bytes] = {}
        try:
            consumer.assign([TopicPartition(SOURCES_TOPIC, 0, 0)])
            reached = 0
            while reached < end:
                if self._stopped():
                    message = f"stopped before the memory of source {self._name} was read"
                    raise SourceError(message)
                for message in consumer.consume(10_000, timeout=0.2):
                    failure = message.error()
                    if failure is None:
                        reached = (message.offset() or 0) + 1
                        self._remember(memory, message)
                    elif failure.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 — its only name
                        reached = message.offset() or 0
                    else:
                        text = f"reading {SOURCES_TOPIC} in Kafka failed: {failure.str()}"
                        raise SourceError(text)
        finally:
            consumer.close()
        return memory

    def _remember(self, memory: dict[str, bytes], message: Message) -> None:
        key, value = (message.key() or b"").decode(), message.value()
        if not key.startswith(self._prefix):
            return
        if value is None:
            memory.pop(key.removeprefix(self._prefix), None)
        else:
            memory[key.removeprefix(self._prefix)] = value
