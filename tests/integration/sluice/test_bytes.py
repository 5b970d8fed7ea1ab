"""Records that are no text, on real Kafka: drivers and executors are killed, tiers are handed over,
and the bytes of each record come out once and equal, in order for each key.
"""

import base64
import gzip
import json
import random
import signal
from collections import defaultdict

import pyarrow.dataset as ds
import pytest
from confluent_kafka import KafkaError, Message, Producer

from sluice.api.lineage_header import texts
from sluice_ops.model.incarnation import State
from tests.integration.sluice.delivery_checks import BALANCE, WRITES_AFTER_NEXT_OWNER
from tests.integration.sluice.state_feed import records
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.lab import Lab, until
from tests.repeating import repeated

PIPELINE_MODULE = "tests.integration.sluice.bytes_pipeline"
KEYS = [b"\xff\xfe" + bytes([number]) for number in range(8)]
"""Not UTF-8, as the values."""
IN_FILES = "select (select count(*) from kept_parquet) + (select count(*) from kept_lines)"
DISORDER = """
    select count(*) from (
        select number, lag(number) over (partition by key order by batch, written_at) as before
        from (select *, split_part(origin, ':', 2)::bigint as number from kept) as rows
    ) as rows where number < before
"""
"""Counts rows that were written after a later record of the same key."""
Record = tuple[bytes | None, bytes | None]
"""A key and a value."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


class Sender:
    """Sends records of random bytes, some of them empty or without a value."""

    def __init__(self, lab: Lab) -> None:
        self.producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
        self.random = random.Random(11)  # noqa: S311
        self.sent: dict[str, Record] = {}
        """The records by partition and offset."""

    def send(self, count: int) -> None:
        for _ in range(count):
            value = self.random.randbytes(self.random.choice((0, 1, 7, 300)))
            self.producer.produce(
                "raw",
                value if self.random.random() < 0.98 else None,
                self.random.choice(KEYS),
                on_delivery=self._delivered,
            )
        assert self.producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None
        self.sent[f"{message.partition()}:{message.offset()}"] = (message.key(), message.value())


def kept(lab: Lab) -> int:
    return int(lab.query("select count(*) from kept")[0][0])


def in_lines(lab: Lab) -> list[tuple[str, Record]]:
    """Return the origin, key and value of each row in the files of JSON lines."""
    files = (lab.home / "archive" / "lines").glob("hour=*/*.jsonl.gz")
    rows = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]

    def plain(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return [(row["origin"], (plain(row["key"]), plain(row["value"]))) for row in rows]


def in_parquet(lab: Lab) -> list[tuple[str, Record]]:
    """Return the origin, key and value of each row in the Parquet files."""
    rows = ds.dataset(lab.home / "archive" / "parquet", partitioning="hive").to_table().to_pylist()
    return [(row["origin"], (row["key"], row["value"])) for row in rows]


def kill_and_move(lab: Lab) -> None:
    """Kill a driver and an executor of each tier, and hand each tier over."""
    lab.driver("enter", 1).send_signal(signal.SIGKILL)
    lab.stop("enter", 1)
    lab.start_owner("enter", 2, "h1")
    lab.wait_for("enter", 2, State.RUNNING)
    lab.driver("keep", 1).send_signal(signal.SIGKILL)
    lab.stop("keep", 1)
    lab.start_owner("keep", 2, "h2")
    lab.kill_executor("enter", 2)
    lab.wait_for("keep", 2, State.RUNNING)
    lab.kill_executor("keep", 2)
    lab.prepare("enter", 2, 3, "h3")
    lab.hand_over("enter", 2, 3)
    lab.prepare("keep", 2, 3, "h3")
    lab.hand_over("keep", 2, 3)


def test_each_record_of_bytes_comes_out_once_as_it_was_sent(lab: Lab) -> None:
    sender = Sender(lab)
    lab.start_owner("enter", 1, "h1")
    lab.start_owner("keep", 1, "h2")
    with repeated(lambda: sender.send(5), every=0.1):
        until("the first records are kept", lambda: kept(lab) > 100)
        kill_and_move(lab)
    until("all records are kept", lambda: kept(lab) >= len(sender.sent))
    until("all rows are in files", lambda: lab.query(IN_FILES) == [(0,)])

    rows = [(origin, (key, value)) for origin, key, value in lab.query("select origin, key, value from kept")]
    for name, held in {"table": rows, "lines": in_lines(lab), "Parquet": in_parquet(lab)}.items():
        assert len(held) == len(sender.sent), f"{name}: each record once"
        assert dict(held) == sender.sent, f"{name}: the bytes are those that were sent"
    assert lab.query(DISORDER) == [(0,)], "the rows of a key are in order"

    order: dict[bytes | None, dict[int, None]] = defaultdict(dict)
    partitions: dict[bytes | None, set[int | None]] = defaultdict(set)
    for message in records(lab, "copies"):
        origin = texts(message.headers())["origin"]
        assert (message.key(), message.value()) == sender.sent[origin]
        order[message.key()].setdefault(int(origin.partition(":")[2]))
        partitions[message.key()].add(message.partition())
    assert sum(map(len, order.values())) == len(sender.sent), "the stream has each record"
    assert all([*offsets] == sorted(offsets) for offsets in order.values()), (
        "the records of a key are in order"
    )
    assert {len(numbers) for numbers in partitions.values()} == {1}, "each key has one partition"

    assert lab.query(BALANCE) == [(0,)]
    assert lab.query(LEDGER_GAPS) == []
    assert lab.query(WRITES_AFTER_NEXT_OWNER) == []
    print(f"{len(sender.sent)} records")
