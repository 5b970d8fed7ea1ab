"""Records so large that a batch fits neither driver nor slot: batches become smaller, and every
record is delivered.
"""

import json
import time

import pytest
from confluent_kafka import Producer

from hits import DRIVER
from sluice.driver.spark.session import AT_ONCE
from sluice.kafka.reader import Streams
from tests.lab import Lab, until

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]
SIZE = 50_000
RECORDS = 2 * DRIVER.heap * 2**20 // AT_ONCE // SIZE


def test_a_batch_that_does_not_fit_is_read_in_smaller_ones(lab: Lab) -> None:
    for host, tier in (("h1", "entry"), ("h2", "enrich")):
        lab.start_owner(tier, 1, host)
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "message.max.bytes": 10 * SIZE})
    now = int(time.time() * 1000)
    for number in range(RECORDS):
        hit = {
            "id": f"{number}-{'x' * SIZE}",
            "user": f"u{number % 9}",
            "ad": "ad-1",
            "kind": "view",
            "at": now,
        }
        producer.produce("raw", json.dumps(hit), partition=number % 4)
        producer.poll(0)
    assert producer.flush(60) == 0
    streams = Streams(lab.endpoints.kafka)
    until("all records wait", lambda: sum(streams.bounds(["enriched"]).ends.values()) >= RECORDS)
    streams.close()
    lab.start_owner("outbound", 1, "h3")
    until("every hit is delivered", lambda: lab.delivered() == (RECORDS, RECORDS), 200)
    assert "batches are smaller from now on" in lab.log("outbound", 1)
    assert lab.report("outbound", 1).state == "running"
