"""The outbox on real Kafka and PostgreSQL: each row that changes a table reaches its stream
once.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql

from sluice.api.sink import Absorbed, OutboxRecord, Rows
from sluice.kafka.producer import TransactionalProducer
from sluice.kafka.reader import StreamError
from sluice.sinks import outbox
from sluice.sinks.batches import Batch
from sluice.sinks.fence import FencedError
from sluice.sinks.ledger import Ledger
from sluice.sinks.outbox import Outbox
from sluice.sinks.table import Latest
from tests.integration.sluice.state_feed import records
from tests.lab import Lab

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]
KINDS = {"who": "char(3)", "n": "numeric(6,1)", "doc": "jsonb"}
NAMES = (f"outbox_{number}" for number in itertools.count())


class Home:
    """A table, its stream, and the owners of the tier that writes both."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.name = lab, next(NAMES)
        self.stream = self.name.replace("_", "-")
        self.table = Latest(self.name, KINDS, key=("who",))
        with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
            for statement in self.table.statements():
                connection.execute(statement)
        topic = NewTopic(self.stream, num_partitions=2, replication_factor=-1)
        admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
        for created in admin.create_topics([topic]).values():
            created.result()
        self.ledger = Ledger(lab.endpoints.postgres, self.name, 1, self.table)
        self.epoch = 1

    def put(self, *rows: tuple[str, float, str], value: bytes | None = None) -> tuple[int, int]:
        """Write a batch; return how many rows were written and refused."""
        of_rows = [
            OutboxRecord(len(who) % 2, who.encode(), value or f"{who}={n:g} {doc}".encode())
            for who, n, doc in rows
        ]
        columns = dict(zip(KINDS, zip(*rows, strict=True), strict=True))
        begin = self.ledger.number + 1
        batch = Batch({"in/0": begin}, {"in/0": begin + 1})
        counts = self.ledger.write(
            batch, Rows(columns, [], [], of_rows), epoch=self.epoch, absorbed=Absorbed(1)
        )
        return counts.written, counts.refused

    def waiting(self) -> list[str]:
        rows = self.lab.query(f"select value from outbox where name = '{self.name}' order by number")  # noqa: S608
        return [bytes(value).decode() for (value,) in rows]

    def owner(self) -> Outbox:
        where = self.lab.endpoints
        return Outbox(where.postgres, where.kafka, self.name, 1, self.name, self.stream)

    def sent(self) -> list[str]:
        return [message.value().decode() for message in records(self.lab, self.stream)]


@pytest.fixture
def home(lab: Lab) -> Iterator[Home]:
    home = Home(lab)
    yield home
    home.ledger.close()


def test_only_rows_that_change_the_table_wait_for_the_stream(home: Home) -> None:
    assert home.put(("a", 1.0, "{}"), ("b", 2.04, '{"x": 1}')) == (2, 0)
    assert home.waiting() == ["a=1 {}", 'b=2.04 {"x": 1}']
    # what the table rounds or writes in another way is the same row
    assert home.put(("a", 1.0, "{ }"), ("b", 2.0, '{"x":1}'), ("c", 3.0, "{}")) == (3, 0)
    assert home.waiting()[2:] == ["c=3 {}"]
    assert home.put(("a", 1.5, "{}"), ("b", 2.0, '{"x": 2}')) == (2, 0)
    assert home.waiting()[3:] == ["a=1.5 {}", 'b=2 {"x": 2}']


def test_a_row_that_the_table_refuses_reaches_no_stream(home: Home) -> None:
    assert home.put(("a", 1.0, "{}"), ("long", 1.0, "{}"), ("b", 1.0, "{so"), ("c", 1e9, "{}")) == (1, 3)
    assert home.waiting() == ["a=1 {}"]
    assert home.put(("d", 1.0, "{}"), value=b"x" * (outbox.MAX_BYTES + 1)) == (0, 1)
    assert home.waiting() == ["a=1 {}"]
    reasons = home.lab.query(f"select reason from {home.name}_refused order by batch")  # noqa: S608
    assert "the most that the tier's stream takes" in reasons[-1][0]


def test_keys_that_the_table_holds_equal_are_each_compared(home: Home) -> None:
    assert home.put(("a", 1.0, "{}"), ("a ", 2.0, "{}")) == (1, 0)
    assert home.waiting() == ["a=1 {}", "a =2 {}"]


def test_each_record_is_sent_once_whatever_dies(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = []

    def put(number: int) -> None:
        home.put((f"{number}", float(number), "{}"))
        expected.append(f"{number}={number} {{}}")

    with closing(home.owner()) as first, closing(home.owner()) as second:
        assert first.send(1) == 0, "nothing waits"
        put(1)
        assert first.send(1) == 1
        assert (home.waiting(), home.sent()) == ([], expected)

        # dies between Kafka's commit and PostgreSQL's
        put(2)
        hand_over = Outbox._hand_over

        def die_afterwards(*given: Any) -> None:
            hand_over(*given)
            message = "killed"
            raise RuntimeError(message)

        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "_hand_over", die_afterwards)
            with pytest.raises(RuntimeError):
                first.send(1)
        assert home.waiting() == expected[1:]
        put(3)
        home.epoch = 2
        assert second.send(2) == 2
        assert (home.waiting(), sorted(home.sent())) == ([], expected)

        # the first owner comes back
        put(4)
        with pytest.raises(FencedError):
            first.send(1)
        assert second.send(2) == 1

        # dies with a transaction open in Kafka: the next owner ends it
        put(5)
        put_record = TransactionalProducer.put

        def put_and_die(producer: TransactionalProducer, *record: Any, **details: Any) -> None:
            put_record(producer, *record, **details)
            producer.flush(10)
            message = "killed"
            raise RuntimeError(message)

        with monkeypatch.context() as patch:
            patch.setattr(TransactionalProducer, "put", put_and_die)
            with pytest.raises(RuntimeError):
                second.send(2)
        with closing(home.owner()) as third:
            assert third.send(3) == 1
    assert (home.waiting(), sorted(home.sent())) == ([], expected)


def test_numbers_rise_after_a_table_was_begun_anew(home: Home) -> None:
    with closing(home.owner()) as owner:
        home.put(("a", 1.0, "{}"))
        assert owner.send(1) == 1
        with psycopg.connect(home.lab.endpoints.postgres) as connection:
            connection.execute(sql.SQL("delete from {}").format(sql.Identifier(home.name)))
            connection.execute("delete from ledger where tier = %s", (home.name,))
        home.ledger.close()
        home.ledger = Ledger(home.lab.endpoints.postgres, home.name, 1, home.table)
        home.put(("a", 1.0, "{}"))
    with closing(home.owner()) as owner:
        assert owner.send(2) == 1
    assert home.sent() == ["a=1 {}"] * 2


def test_a_stream_that_kafka_lacks_keeps_the_records_waiting(home: Home) -> None:
    home.put(("a", 1.0, "{}"))
    where = home.lab.endpoints
    owner = Outbox(where.postgres, where.kafka, home.name, 1, home.name, "nowhere")
    with closing(owner), pytest.raises(StreamError, match="nowhere"):
        owner.send(1)
    assert home.waiting() == ["a=1 {}"]
