"""A sink that writes each record into a topic of a Kafka cluster outside of the platform, once.

Kafka has transactions of its own. One contains the rows of a batch and their high-water marks
(`sluice.api.marks`). A crash between Kafka's commit and PostgreSQL's brings the rows again, and the
marks in Kafka say which rows Kafka has (decision 93).

The marks are in a compacted topic beside the rows. Its name is also the `transactional.id`, so a
writer that begins ends the transaction of the writer before it, and fences that writer.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql

from sluice.api.declarations import DeclarationError
from sluice.api.marks import Marks, first_seen
from sluice.api.sink import Rows, Sink, SinkAwayError, Written
from sluice.kafka.producer import TransactionalProducer
from sluice.postgres import identity
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


class _FencedError(Exception):
    """Another writer of the sink has begun."""


@dataclass(frozen=True)
class KafkaTopic(Sink):
    """Writes each record once, as JSON, for readers with `isolation.level=read_committed`.

    The table `<name>_refused` keeps records that are larger than 1 MB.
    """

    exactly_once: ClassVar[bool] = True

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

    @property
    def tables(self) -> Sequence[str]:
        return (f"{self.name}_refused",)

    def statements(self) -> list[sql.Composed]:
        """Return the statement that creates the table of refused records."""
        return [
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (origin text PRIMARY KEY, record jsonb NOT NULL,"
                " reason text NOT NULL, batch bigint NOT NULL,"
                " refused_at timestamptz NOT NULL DEFAULT clock_timestamp())"
            ).format(sql.Identifier(f"{self.name}_refused"))
        ]

    def write(
        self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event
    ) -> Written:
        """Write the new rows that Kafka lacks, in one transaction of Kafka."""
        new = rows.only(first_seen(marks, rows.paths, rows.origins))
        records = [self._encoded(new, row) for row in range(len(new))]
        sizes = [len(key or b"") + len(value) for key, value in records]
        accepted = [row for row, size in enumerate(sizes) if size <= MAX_BYTES - HEADER_BYTES]
        batch_rows, batch_records = new.only(accepted), [records[row] for row in accepted]
        try:
            try:
                _writer(self, cursor).send(batch_rows, batch_records, halt)
            except _FencedError:
                # A replay beside the tier has written. If instead a successor has ended this
                # session, `_writer` fails, because it asks PostgreSQL first.
                del _WRITERS[cursor.connection]
                _writer(self, cursor).send(batch_rows, batch_records, halt)
        except (KafkaException, BrokersError, TimeoutError, _FencedError) as error:
            reason = error.args[0] if error.args else f"no answer within {SECONDS:.0f} s"
            reason = reason.str() if isinstance(reason, KafkaError) else reason
            message = (
                f'topic "{self.topic}" of Kafka at {brokers(self.kafka).servers} takes no records of sink '
                f'"{self.name}": {reason}; the batch is tried again; check this cluster and the '
                "rights of its user"
            )
            raise SinkAwayError(message) from error
        refused = sorted({*range(len(new))} - {*accepted})
        self._keep(cursor, new.only(refused), batch)
        return Written(len(accepted), len(refused))

    def _record(self, rows: Rows, row: int) -> dict[str, Any]:
        return {name: rows.columns[name][row] for name in self.columns}

    def _encoded(self, rows: Rows, row: int) -> tuple[bytes | None, bytes]:
        """Return the key and the value of a row."""
        key = None if self.key is None else rows.columns[self.key][row]
        return key if key is None else str(key).encode(), as_json(self._record(rows, row)).encode()

    def _keep(self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int) -> None:
        """Store refused rows."""
        cursor.executemany(
            sql.SQL(
                "INSERT INTO {} (origin, record, reason, batch) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING"
            ).format(sql.Identifier(f"{self.name}_refused")),
            [
                (
                    rows.origins[row],
                    as_json(self._record(rows, row), nul=""),
                    f"larger than {MAX_BYTES} bytes",
                    batch,
                )
                for row in range(len(rows))
            ],
        )


class _Writer:
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

    def send(self, rows: Rows, records: Sequence[tuple[bytes | None, bytes]], halt: Event) -> None:
        """Write the rows that Kafka lacks, and their marks. SinkAwayError if `halt` is set.

        _FencedError if another writer has begun.
        """
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
                raise _FencedError(str(error)) from error
            raise KafkaException(" ".join([error.args[0].str(), *refusals[:1]])) from error
        self._taken = taken


_WRITERS: WeakKeyDictionary[psycopg.Connection[Any], _Writer] = WeakKeyDictionary()
"""The writer of each session of PostgreSQL. The ledger opens a new session after each error, so the
next writer fences this one and reads the marks again.
"""


def _writer(sink: KafkaTopic, cursor: psycopg.Cursor[Any]) -> _Writer:
    """Return the session's writer.

    A session that a successor has ended fences nobody, because PostgreSQL is asked first.
    """
    if cursor.connection not in _WRITERS:
        _WRITERS[cursor.connection] = _Writer(sink, f"sluice-{sink.name}-{identity(cursor)}")
    return _WRITERS[cursor.connection]


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
