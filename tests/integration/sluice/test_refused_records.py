"""Records that PostgreSQL refuses go to quarantine, and the tier continues; a replay quarantines
them again.
"""

import json
import subprocess
import sys
from contextlib import closing

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sluice.kafka.reader import Streams
from tests.lab import ROOT, Lab, until

PIPELINE_MODULE = "tests.integration.sluice.loading_pipeline"
GOOD = 400
BAD = {
    b"40000;{};0": "PostgreSQL refuses it: smallint out of range",
    b"1;{so;0": "PostgreSQL refuses it: invalid input syntax for type json",
    b"2;{};999999999999": "at is before the year 1 or after 9999",
    b"3;\xff;0": "line is not valid UTF-8",
    b"4;\0;0": "line contains the character NUL, which PostgreSQL does not allow in texts",
    b"5;[40000];0": 'PostgreSQL refuses it: new row for relation "loaded" violates check constraint "short"',
}

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


def quarantined(lab: Lab) -> list[tuple[bytes, str]]:
    """Return the records in quarantine with their reasons."""
    with closing(Streams(lab.endpoints.kafka)) as streams:
        ends = streams.bounds(["raw.quarantine"]).ends
    consumer = Consumer({"bootstrap.servers": lab.endpoints.kafka, "group.id": "test"})
    consumer.assign([TopicPartition("raw.quarantine", int(place.rpartition("/")[2]), 0) for place in ends])
    messages = [message for _ in range(sum(ends.values())) if (message := consumer.poll(20)) is not None]
    consumer.close()
    return [
        (message.value() or b"", dict(message.headers() or [])["reason"].decode()) for message in messages
    ]


def test_records_that_postgresql_refuses_are_quarantined(lab: Lab) -> None:
    with psycopg.connect(lab.endpoints.postgres) as connection:
        connection.execute("alter table loaded add constraint short check (length(doc::text) < 6)")
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    for number in range(GOOD):
        producer.produce("raw", f"{number};{{}};{number}", partition=number % 4)
    for value in BAD:
        producer.produce("raw", value, partition=1)
    for number in range(GOOD, 2 * GOOD):
        producer.produce("raw", f"{number};{{}};{number}", partition=number % 4)
    assert producer.flush(30) == 0
    lab.start_owner("load", 1, "h1")
    until(
        "all good records are loaded",
        lambda: lab.query("select count(*), sum(n) from loaded") == [(2 * GOOD, sum(range(2 * GOOD)))],
    )
    assert dict(quarantined(lab)) == BAD
    assert len(quarantined(lab)) == len(BAD)
    counts = "select sum(rows_in), sum(rows_out), sum(filtered), sum(quarantined), sum(replays) from ledger"
    assert lab.query(counts) == [(2 * GOOD + len(BAD), 2 * GOOD, 0, len(BAD), 0)]

    command = [sys.executable, "-m", "sluice.replay", "load", "--quarantine", "--rate", "500", "--json"]
    done = subprocess.run(
        command, env=lab.env, cwd=ROOT, check=False, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    replay = json.loads(done.stdout)
    assert (replay["put"], replay["quarantined"]) == (0, len(BAD))
    assert sorted(quarantined(lab)) == sorted([*BAD.items()] * 2)
    assert lab.report("load", 1).state == "running"
    assert "restarts" not in lab.log("load", 1)
