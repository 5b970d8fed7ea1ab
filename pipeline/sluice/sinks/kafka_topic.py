"""A sink that writes each record into a topic of a Kafka cluster outside of the platform, once.

The marks (`sluice.sinks.outside`) are in a compacted topic beside the rows. Its name is also the
`transactional.id`, so a writer that begins ends the transaction of the writer before it, and fences
that writer (decision 93).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.api.declarations import DeclarationError
from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, SinkAwayError
from sluice.kafka.producer import TransactionalProducer
from sluice.sinks.outside import OutsideSink, ReplacedError
from sluice.sinks.row_json import as_json
from sluice_ops.site.brokers import BrokersError, brokers

SECONDS = 10.0
"""The longest wait for one answer of Kafka."""
BEGIN_SECONDS = 30.0
"""The longest wait for the first answer: Kafka makes the topic of its transactions for it."""
MAX_BYTES = 1_000_000
"""The largest record, as in Kafka's clients; topics take such records by default."""
HEADER_BYTES = 500
"""Room for the header and the frame of a record."""
TOPIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,248}")
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024)}
"""Small segments, because Kafka compacts only segments that are full."""
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})  # noqa: SLF001


@dataclass(frozen=True)
class KafkaTopic(OutsideSink):
    """Writes each record once, as JSON, for readers with `isolation.level=read_committed`.

    The table `<name>_refused` keeps records that are larger than 1 MB.
    """

    away: ClassVar[tuple[type[Exception], ...]] = (KafkaException, BrokersError, TimeoutError, ReplacedError)

    topic: str
    """An existing topic."""
    kafka: str
    """The address of the cluster, as in the endpoints file: `k1:9092,k2:9092`, or
    `ssl://k1:9093?ca=/etc/sluice/them.pem&users=/etc/sluice/them&user=shop`.
    """
    key: str | None = None
    """The column with the records' key. None: records have no key, and go to any partition."""

    def __post_init__(self) -> None:
        """Raise DeclarationError for a wrong `topic`, `kafka` or `key`."""
        wrong = None
        if not TOPIC.fullmatch(self.topic):
            wrong = f"topic is {self.topic!r}, which is no name of a topic"
        elif self.key is not None and self.key not in self.columns:
            wrong = f"key is {self.key!r}; name one of its columns: {', '.join(self.columns)}"
        try:
            if not brokers(self.kafka).servers:
                wrong = "kafka is empty; give the cluster's address, such as k1:9092"
        except BrokersError as error:
            wrong = f"kafka: {error}"
        if wrong is not None:
            message = f'sink "{self.name}": {wrong}'
            raise DeclarationError(message)

    def connect(self, writer: str) -> "_Producer":
        return _Producer(self, writer)

    def explain(self, error: Exception) -> str:
        reason = error.args[0] if error.args else f"no answer within {SECONDS:.0f} s"
        reason = reason.str() if isinstance(reason, KafkaError) else reason
        return (
            f'topic "{self.topic}" of Kafka at {brokers(self.kafka).servers} takes no records of sink '
            f'"{self.name}": {reason}; the batch is tried again; check this cluster and the rights of its '
            "user"
        )

    def encoded(self, rows: Rows, row: int) -> tuple[bytes | None, bytes]:
        """Return the key and the value of a row."""
        key = None if self.key is None else rows.columns[self.key][row]
        return key if key is None else str(key).encode(), as_json(self.record(rows, row)).encode()


class _Producer:
    """The producer of one session of PostgreSQL, and the marks of the rows that Kafka has."""

    def __init__(self, sink: KafkaTopic, identity: str) -> None:
        """Fence the writer before, and read the marks that it committed last."""
        self._sink, self._identity = sink, identity
        client = {**brokers(sink.kafka).client, "log_level": 2}
        self._producer = TransactionalProducer(
            {
                **client,
                "transactional.id": identity,
                "message.max.bytes": MAX_BYTES,
                "partitioner": "murmur2_random",  # as Kafka's clients in Java
            }
        )
        self._producer.init_transactions(BEGIN_SECONDS)
        topics = self._producer.list_topics(timeout=SECONDS).topics
        if sink.topic not in topics:
            message = (
                f'sink "{sink.name}": topic "{sink.topic}" is not at {brokers(sink.kafka).servers}, or this '
                "user must not see it; create the topic there, then the tier continues"
            )
            raise SinkAwayError(message)
        if identity in topics:
            self._taken = _read_marks(client, identity)
        else:
            topic = NewTopic(identity, num_partitions=1, replication_factor=-1, config=COMPACTED)
            admin = AdminClient(client)  # it must outlive the answer
            admin.create_topics([topic])[identity].result(SECONDS)
            self._taken = {}

    def write(self, rows: Rows, halt: Event) -> dict[int, str]:
        """Write the rows that Kafka lacks, except those that are too large."""
        records = [self._sink.encoded(rows, row) for row in range(len(rows))]
        too_large = {
            row: f"larger than {MAX_BYTES} bytes"
            for row, (key, value) in enumerate(records)
            if len(key or b"") + len(value) > MAX_BYTES - HEADER_BYTES
        }
        accepted = [row for row in range(len(rows)) if row not in too_large]
        self._send(rows.only(accepted), [records[row] for row in accepted], halt)
        return too_large

    def _send(self, rows: Rows, records: Sequence[tuple[bytes | None, bytes]], halt: Event) -> None:
        """Write the rows that Kafka lacks, and their marks."""
        taken = dict(self._taken)
        missing = first_seen(taken, rows.paths, rows.origins)
        if not missing:
            return
        refusals: list[str] = []

        def record_refusal(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refusals.append(error.str())

        put = partial(self._producer.put, on_delivery=record_refusal)
        try:
            self._producer.begin_transaction()
            for row in missing:
                if halt.is_set():
                    self._producer.abort_transaction(SECONDS)
                    message = f"no record of sink {self._sink.name} was sent, because the tier must hold"
                    raise SinkAwayError(message)
                put(self._sink.topic, *records[row])
            for path in {rows.paths[row] for row in missing}:
                put(self._identity, path.encode(), json.dumps(taken[path]).encode())
            self._producer.commit_transaction(SECONDS)
        except KafkaException as error:
            if error.args[0].fatal() or error.args[0].code() in FENCED:
                raise ReplacedError(str(error)) from error
            raise KafkaException(" ".join([error.args[0].str(), *refusals[:1]])) from error
        self._taken = taken


def _read_marks(client: dict[str, Any], topic: str) -> Marks:
    """Return the committed marks."""
    marks: Marks = {}
    consumer = Consumer(
        {
            **client,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(SECONDS)
            if message is None:
                text = f"topic {topic} was not read within {SECONDS:.0f} s"
                raise KafkaException(text)
            error = message.error()
            if error is None:
                marks[message.key().decode()] = tuple(json.loads(message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the public name of the code
                return marks
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
