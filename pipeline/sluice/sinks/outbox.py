"""The outbox: rows that changed the table of a tier with state, and that its stream must get.

The transaction of a batch writes the rows into the table and their records into the outbox. So the
ledger decides what the stream gets, whatever dies (decision 99). Then the tier's owner sends the
records in a transaction of Kafka, and forgets them. Each record carries its number. An owner that
begins fences the one before it, and finds the last number sent at the stream's end.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import psycopg
import structlog
from confluent_kafka import KafkaException
from psycopg import sql

from sluice.api.sink import OutboxRecord, SinkAwayError
from sluice.kafka.producer import TransactionalProducer
from sluice.kafka.reader import Streams
from sluice.postgres import Connected, identity
from sluice.sinks.fence import claim
from sluice.sinks.frozen_writers import FROZEN_IN_CALL_SECONDS, Right, end_frozen, name_session
from sluice_ops.model.kafka_access import OUTBOXES
from sluice_ops.site.brokers import brokers

log = structlog.get_logger()

STATEMENTS: tuple[sql.SQL, ...] = (
    sql.SQL(
        "CREATE TABLE IF NOT EXISTS outbox (name text, number bigint GENERATED ALWAYS AS IDENTITY,"
        " partition int NOT NULL, key bytea, value bytea NOT NULL, PRIMARY KEY (name, number))"
    ),
)
MAX_BYTES = 1_000_000
"""The largest record, key and value together."""
SECONDS = 10.0
"""The longest wait for one answer of Kafka."""
BEGIN_SECONDS = 30.0
"""The longest wait for Kafka's first answer, which may end the transaction of another owner."""
TRANSACTION_MS = 10_000
"""Kafka aborts a transaction that is open for longer: it holds back the stream's readers."""
MOST = 5_000
"""The most records of one transaction."""
NUMBER = "number"
"""The header with the database and the number of a record.

Numbers rise from record to record, also after the tier was begun anew.
"""
NEAR_END = 100
"""So many of the last offsets of a partition are read first, for the last number sent."""


class Waiting(NamedTuple):
    """A record that waits for its stream."""

    number: int
    record: OutboxRecord


def refused(records: Sequence[OutboxRecord]) -> dict[int, str]:
    """Return the rows whose records the stream cannot get, with the reasons."""
    reasons = {}
    for row, record in enumerate(records):
        if record.value is None:
            reasons[row] = "the row does not fit the format of the tier's stream"
        elif len(record.value) + len(record.key or b"") > MAX_BYTES:
            reasons[row] = f"larger than {MAX_BYTES} bytes, the most that the tier's stream takes"
    return reasons


def put(cursor: psycopg.Cursor[Any], name: str, records: Sequence[OutboxRecord]) -> None:
    """Put records into the outbox of a table, in the caller's transaction."""
    if records:
        cursor.executemany(
            "INSERT INTO outbox (name, partition, key, value) VALUES (%s, %s, %s, %s)",
            [(name, record.partition, record.key, record.value) for record in records],
        )


class Outbox(Connected):
    """Sends what one incarnation of a tier has in its outbox. Threads may share it."""

    def __init__(  # noqa: PLR0913, PLR0917 — the two services, and the tier's names
        self, postgres: str, kafka: str, tier: str, incarnation: int, table: str, stream: str
    ) -> None:
        """Prepare; nothing is read or sent yet."""
        super().__init__(postgres)
        self._kafka, self._tier, self._incarnation = kafka, tier, incarnation
        self._table, self._stream = table, stream
        self._sender: _Sender | None = None
        self._lock = Lock()

    def send(self, epoch: int) -> int:
        """Send all that waits, and return the number of records.

        `epoch` gives the right to write: FencedError if a writer with a higher right has written.
        SinkAwayError if Kafka does not take the records now.
        """
        with self._lock:
            count = 0
            while sent := self._send(Right(epoch, self._incarnation)):
                count += sent
            return count

    @property
    def sends(self) -> bool:
        """Whether another thread is sending."""
        return self._lock.locked()

    def close(self) -> None:
        """Close the connections."""
        self._sender = None
        super().close()

    def _send(self, right: Right) -> int:
        try:
            connection = self.open()
            if not self._waiting(connection, 1):
                return 0
            name_session(connection, right, self._tier)
            with connection.transaction(), connection.cursor() as cursor:
                claim(cursor, self._tier, right)
                waiting = self._waiting(connection, MOST)
                if waiting:
                    self._hand_over(waiting, identity(cursor))
                    cursor.execute(
                        "DELETE FROM outbox WHERE name = %s AND number <= %s",
                        (self._table, waiting[-1].number),
                    )
                return len(waiting)
        except psycopg.errors.LockNotAvailable:
            end_frozen(connection, right, self._tier, FROZEN_IN_CALL_SECONDS)
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _waiting(self, connection: psycopg.Connection[Any], most: int) -> list[Waiting]:
        rows = connection.execute(
            "SELECT number, partition, key, value FROM outbox WHERE name = %s ORDER BY number LIMIT %s",
            (self._table, most),
        )
        return [Waiting(number, OutboxRecord(*content)) for number, *content in rows]

    def _hand_over(self, waiting: Sequence[Waiting], database: str) -> None:
        """Write the records that the stream lacks."""
        try:
            if self._sender is None:
                self._sender = _Sender(self._kafka, self._tier, self._stream, database)
            self._sender.send(waiting)
        except KafkaException as error:
            message = (
                f"stream {self._stream} takes no records of tier {self._tier}: {error.args[0].str()}; "
                "they wait in PostgreSQL, in the table outbox, and are sent again"
            )
            raise SinkAwayError(message) from error


class _Sender:
    """The producer of an owner. After any failure, the owner makes a new one."""

    def __init__(self, kafka: str, tier: str, stream: str, database: str) -> None:
        """Fence the owner before, and find the last number that it sent."""
        self._stream, self._database = stream, database
        self._producer = TransactionalProducer(
            {
                **brokers(kafka).client,
                "transactional.id": f"{OUTBOXES}{tier}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "message.max.bytes": 2 * MAX_BYTES,
                "log_level": 2,
            }
        )
        self._producer.init_transactions(BEGIN_SECONDS)
        self._last = last_sent(kafka, stream, database)

    def send(self, waiting: Sequence[Waiting]) -> None:
        """Write the records after the last one, in one transaction."""
        new = [each for each in waiting if each.number > self._last]
        if not new:
            return
        self._producer.begin_transaction()
        for number, record in new:
            headers = [(NUMBER, f"{self._database}:{number}".encode())]
            self._producer.put(
                self._stream, record.key, record.value, partition=record.partition, headers=headers
            )
        self._producer.commit_transaction(SECONDS)
        self._last = new[-1].number


def last_sent(kafka: str, stream: str, database: str) -> int:
    """Return the last number of a database whose record is in a stream; 0 without one.

    The records of a transaction have rising numbers, so all numbers before it were sent, too.
    """
    streams = Streams(kafka)
    try:
        bounds = streams.bounds([stream])
        last = 0
        for place, end in bounds.ends.items():
            first, near, newest = end, NEAR_END, 0
            while not newest and first > bounds.oldest[place]:
                first, near = max(bounds.oldest[place], end - near), near * 10
                messages = streams.messages(place, first, end)
                newest = max((number_of(message.headers(), database) for message in messages), default=0)
            last = max(last, newest)
        return last
    finally:
        streams.close()


def number_of(headers: Sequence[tuple[str, bytes]] | None, database: str) -> int:
    """Return a record's number, if it is of this database; else 0. Pure."""
    for name, value in headers or ():
        if name == NUMBER:
            of, _, number = value.decode(errors="replace").rpartition(":")
            return int(number) if of == database and number.isdecimal() else 0
    return 0
