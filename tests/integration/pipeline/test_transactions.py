"""A sender that uses Kafka's transactions: what it has committed arrives once, what it took back never, and nobody calls its marks lost."""

import json
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from ops.model.incarnation import State
from pipeline import declare
from pipeline.audit.__main__ import Auditor
from pipeline.driver.positions import SETTLED_MS
from tests.lab import Lab, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def hit(identity: str) -> bytes:
    return json.dumps({"id": identity, "user": "u", "ad": "ad-1", "kind": "view", "at": int(time.time() * 1000)}).encode()


def test_what_was_committed_arrives_and_what_was_taken_back_does_not(lab: Lab) -> None:
    for tier, host in (("entry", "h1"), ("enrich", "h2"), ("outbound", "h3")):
        lab.cold(tier, 1, host)
        lab.wait(tier, 1, State.RUNNING)
    producer = Producer({"bootstrap.servers": lab.where.kafka, "transactional.id": "sender"})
    producer.init_transactions(30)
    tiers = declare.load("pipeline.hits").tiers
    with closing(Auditor(tuple(each for each in tiers if each.name != "counts"), lab.where)) as auditor:
        missing, sent, begun = auditor.look(), 0, time.monotonic()
        while time.monotonic() < begun + 3 * SETTLED_MS / 1000:
            for kind in ("good", "back"):
                producer.begin_transaction()
                for number in range(sent, sent + 10):
                    producer.produce("raw", hit(f"{kind}-{number}"))
                producer.flush(30)
                if kind == "good":
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
            sent += 10
            missing += auditor.look()
            time.sleep(0.5)
        until("all that was committed is delivered", lambda: lab.delivered()[0] >= sent)
        time.sleep(5)
        missing += auditor.look()
    rows = lab.ask("select id from delivered order by id")
    assert sorted(row[0] for row in rows) == sorted(f"good-{number}" for number in range(sent))
    assert [each.sentence for each in missing] == []
