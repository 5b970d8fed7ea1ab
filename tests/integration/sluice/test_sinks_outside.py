"""Tiers that write what readers outside of Sluice read: drivers and executors are killed, tiers are
handed over, and each record comes out once.
"""

import gzip
import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import deltalake
import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from sluice.api import declarations
from sluice.api.sink import Rows
from sluice.audit.__main__ import Auditor
from sluice.sink_testing import SinkCase, check_sink
from sluice.sinks.batches import Batch
from sluice.sinks.kafka_topic import MAX_BYTES, KafkaTopic
from sluice.sinks.ledger import Ledger
from sluice_ops.model.status import Check
from sluice_ops.queries import figures
from tests.integration.sluice.test_http_sink import is_done, put, sums
from tests.integration.sluice.test_killed_at_commit import HOLD
from tests.integration.sluice.test_killed_at_commit import session as session_of
from tests.lab import Lab, until
from tests.mariadb import MariaDB, mariadb

PIPELINE_MODULE = "tests.integration.sluice.outside_pipeline"
FIRST, MORE, ALL = 300, 600, 900
SMALLINT = 2**15
"""PostgreSQL refuses this number in a column of type smallint."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture(scope="module", autouse=True)
def environment(lab: Lab) -> None:
    lab.env["SLUICE_TEST_KAFKA"] = lab.endpoints.kafka
    lab.env["SLUICE_TEST_DATABASE"] = str(lab.home / "outside.db")
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute(HOLD)


def rows_in_ledger(lab: Lab, tier: str) -> int:
    return int(
        lab.query(f"select coalesce(sum(rows_out), 0) from ledger where tier = '{tier}'")[0][0]  # noqa: S608
    )


def kill_at_commit(lab: Lab, tier: str, end: int) -> None:
    """Put records, kill a tier's driver at the commit of a batch, and have it rolled back."""
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", (tier,))
        put(lab, end)
        waiting = until(f"{tier} commits", lambda: session_of(lab, tier))
        lab.driver(tier, 1).send_signal(signal.SIGKILL)
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (waiting,))
    lab.stop(tier, 1)


def move(lab: Lab, tier: str, end: int) -> None:
    """Start another driver of a killed tier, hand over to a third one, put records, and kill its
    executor.
    """
    lab.start_owner(tier, 2, "h2")
    lab.prepare(tier, 2, 3, "h3")
    lab.hand_over(tier, 2, 3)
    put(lab, end)
    lab.kill_executor(tier, 3)
    until("every record is written", lambda: is_done(lab, tier))


def numbers(session: SparkSession, folder: Path) -> list[int]:
    return sorted(row["n"] for row in session.read.parquet(f"file://{folder}").collect())


def test_spark_reads_each_record_once_from_the_files_of_a_killed_tier(
    lab: Lab, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(lab.home / "endpoints.json"))
    folder = lab.home / "archive" / "numbers"
    put(lab, FIRST)
    lab.start_owner("save", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "save") > 0)
    kill_at_commit(lab, "save", MORE)
    move(lab, "save", ALL)
    until("all rows are in files", lambda: lab.query("select count(*) from saved") == [(0,)])
    (folder / "hour=2000-01-01-00").mkdir()
    (folder / "hour=2000-01-01-00" / ".from-000000000000.parquet.1").write_text("a writer died here")
    assert numbers(session, folder) == list(range(ALL))

    with closing(Auditor((declarations.load(PIPELINE_MODULE).tier("save"),), lab.endpoints)) as auditor:
        assert auditor.check() == []
        lab.query("update archived set rows = rows - 2 returning rows")
        (lost,) = auditor.check()
        assert (lost.records, "the number of rows in the files of saved grew by -2" in lost.sentence) == (
            2,
            True,
        )
        (line,) = (line for line in figures.read_figures().audit if line.tier == "save")
        assert line.checked is Check.SUMS


def make_topic(lab: Lab, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=-1)])[topic].result()


def committed(lab: Lab, topic: str) -> list[int]:
    """Return the number of each committed record of a topic."""
    settings = {"bootstrap.servers": lab.endpoints.kafka, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    read, ended = [], set()
    while len(ended) < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            read.append(int(json.loads(message.value())["n"]))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return sorted(read)


def test_a_topic_outside_conforms(lab: Lab) -> None:
    make_topic(lab, "conforms")
    case = SinkCase(
        KafkaTopic("conforming", {"n": "bigint"}, topic="conforms", kafka=lab.endpoints.kafka, key="n"),
        lambda number: {"n": number},
        lambda count: list(range(count)),
        lambda: committed(lab, "conforms"),
    )
    check_sink(case, lab.endpoints.postgres)


def test_kafka_outside_has_each_record_of_a_killed_tier_once(lab: Lab) -> None:
    make_topic(lab, "told-outside")
    first = ALL + FIRST
    put(lab, first)
    lab.start_owner("tell", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "tell") > 0)
    kill_at_commit(lab, "tell", first + 100)
    assert len(committed(lab, "told-outside")) > rows_in_ledger(lab, "tell"), "killed between the commits"
    move(lab, "tell", first + 200)
    assert committed(lab, "told-outside") == list(range(first + 200))


def in_lake(lab: Lab, folder: str) -> list[int]:
    """Return the numbers in a Delta table."""
    table = deltalake.DeltaTable(str(lab.home / "archive" / folder)).to_pyarrow_table()
    return sorted(table["n"].to_pylist())


def test_a_delta_table_has_each_record_of_a_killed_tier_once(lab: Lab) -> None:
    first = ALL + FIRST + 300
    put(lab, first)
    lab.start_owner("lake", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "lake") > 0)
    kill_at_commit(lab, "lake", first + 100)
    move(lab, "lake", first + 200)
    until("all rows are committed", lambda: lab.query("select count(*) from in_lake") == [(0,)])
    assert in_lake(lab, "lake") == list(range(first + 200))


def in_lines(lab: Lab, folder: str) -> list[int]:
    """Return the numbers in files of JSON lines."""
    files = (lab.home / "archive" / folder).glob("hour=*/*.jsonl.gz")
    texts = (gzip.decompress(file.read_bytes()).decode() for file in files)
    return sorted(json.loads(line)["n"] for text in texts for line in text.splitlines())


def inserted(lab: Lab) -> list[int]:
    """Return the numbers in the database outside."""
    with closing(sqlite3.connect(lab.home / "outside.db")) as database:
        return [n for (n,) in database.execute("select n from numbers order by n")]


def test_another_database_has_each_record_of_a_killed_tier_once(lab: Lab) -> None:
    with closing(sqlite3.connect(lab.home / "outside.db")) as database:
        database.execute("create table numbers (n integer)")
    first = ALL + 3 * FIRST
    put(lab, first)
    lab.start_owner("insert", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "insert") > 0)
    kill_at_commit(lab, "insert", first + 100)
    assert len(inserted(lab)) > rows_in_ledger(lab, "insert"), "killed between the commits"
    move(lab, "insert", first + 200)
    assert inserted(lab) == list(range(first + 200)), "no key drops duplicates in this table"


@pytest.fixture
def server(lab: Lab) -> Iterator[MariaDB]:
    """Run a MariaDB outside, with a table without a key."""
    folder = lab.home / "mariadb"
    folder.mkdir()
    with mariadb(folder) as running:
        running.make_table("numbers", "n int")
        lab.env["SLUICE_TEST_MARIADB"] = running.url
        lab.env["SLUICE_TEST_MARIADB_PASSWORD"] = running.password_file
        yield running


def test_a_mariadb_that_dies_has_each_record_of_a_killed_tier_once(lab: Lab, server: MariaDB) -> None:
    def loaded() -> list[int]:
        return [n for (n,) in server.query("select n from numbers order by n")]

    def away() -> str:
        report = lab.report("load", 3)
        return (report is not None and report.away) or ""

    first = ALL + 4 * FIRST
    put(lab, first)
    lab.start_owner("load", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "load") > 0)
    kill_at_commit(lab, "load", first + 100)
    assert len(loaded()) > rows_in_ledger(lab, "load"), "killed between the commits"
    move(lab, "load", first + 200)
    assert loaded() == list(range(first + 200)), "no key drops duplicates in this table"

    server.kill()
    put(lab, first + 250)
    until("the tier says why it waits", lambda: "Can't connect to MySQL server" in away())
    server.start()
    until("every record is written", lambda: is_done(lab, "load"))
    assert loaded() == list(range(first + 250))
    assert lab.query("select count(*) from loaded_refused") == [(0,)]
    lab.stop("load", 3)


def test_all_sinks_of_a_killed_tier_have_each_record_once(lab: Lab) -> None:
    make_topic(lab, "spread-outside")
    first = ALL + 5 * FIRST
    put(lab, first)
    lab.start_owner("spread", 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, "spread") > 0)
    kill_at_commit(lab, "spread", first + 100)
    assert len(committed(lab, "spread-outside")) > rows_in_ledger(lab, "spread"), "killed between the sinks"
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    producer.produce("raw", json.dumps({"n": SMALLINT}), partition=0)
    assert producer.flush(30) == 0
    move(lab, "spread", first + 201)
    numbers_of_all = list(range(first + 100)) + list(range(first + 101, first + 201))
    assert [n for (n,) in lab.query("select n from spread_rows order by n")] == numbers_of_all
    assert committed(lab, "spread-outside") == numbers_of_all
    waiting = "select (select count(*) from spread_lake) + (select count(*) from spread_lines)"
    until("all rows are in files", lambda: lab.query(waiting) == [(0,)])
    assert in_lake(lab, "spread") == numbers_of_all
    assert in_lines(lab, "spread-lines") == numbers_of_all
    assert sums(lab, "spread") == {
        "rows_in": first + 201,
        "rows_out": len(numbers_of_all),
        "filtered": 0,
        "quarantined": 1,
        "replays": 0,
        "lost": 0,
    }

    with closing(Auditor((declarations.load(PIPELINE_MODULE).tier("spread"),), lab.endpoints)) as auditor:

        def lost() -> list[str]:
            return [missing.sentence for _ in range(5) for missing in auditor.check()]

        lab.query("delete from spread_rows where n < 2 returning n")
        (sentence,) = lost()
        assert "2 records that spread read in batches" in sentence
        assert "are not in spread_rows" in sentence
        lab.query("update archived set rows = rows - 3 where name = 'spread_lake' returning rows")
        (sentence,) = lost()
        assert "the number of rows in the files of spread_lake grew by -3" in sentence
        lab.query("update archived set rows = rows + 1 where name = 'spread_lines' returning rows")
        (sentence,) = lost()
        assert "the number of rows in the files of spread_lines grew by 1" in sentence


def test_a_tier_and_a_replay_write_in_turn_and_large_records_are_refused(lab: Lab) -> None:
    make_topic(lab, "in-turn")
    sink = KafkaTopic("turns", {"n": "bigint", "text": "text"}, topic="in-turn", kafka=lab.endpoints.kafka)
    with psycopg.connect(lab.endpoints.postgres) as connection:
        for statement in sink.statements():
            connection.execute(statement)

    def rows(first: int, path: str, text: str = "") -> Rows:
        columns = {"n": [first, first + 1], "text": ["", text]}
        return Rows(columns, [f"0:{first}", f"0:{first + 1}"], [path] * 2)

    with (
        closing(Ledger(lab.endpoints.postgres, "turns", 1, sink)) as tier,
        closing(Ledger(lab.endpoints.postgres, "turns", 1, sink)) as replay,
    ):
        for first in (0, 2):
            batch = Batch({"raw/0": first}, {"raw/0": first + 2})
            assert tier.write(batch, rows(first, "0"), epoch=1).written == 2
            again = rows(first + 10, f"0/again:0:{first + 10}")
            assert replay.replay(2, again, number=1, quarantined=0, save=lambda _, __: None).written == 2
        large = rows(4, "0", "x" * MAX_BYTES)
        counts = tier.write(Batch({"raw/0": 4}, {"raw/0": 6}), large, epoch=1)
        assert (counts.written, counts.quarantined) == (1, 1)
    assert committed(lab, "in-turn") == [0, 1, 2, 3, 4, 10, 11, 12, 13]
    assert lab.query("select origin, reason from turns_refused") == [("0:5", "larger than 1000000 bytes")]
