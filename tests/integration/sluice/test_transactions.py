"""A sender with Kafka transactions: committed records are delivered once, aborted ones never, and
markers do not count as losses.
"""

import json
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice_ops.model.incarnation import State
from tests.integration.sluice.state_feed import ends
from tests.lab import Lab, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def hit(identity: str) -> bytes:
    return json.dumps(
        {"id": identity, "user": "u", "ad": "ad-1", "kind": "view", "at": int(time.time() * 1000)}
    ).encode()


def transact(producer: Producer, first: int) -> int:
    """Send ten records in an aborted transaction and ten in a committed one; return the next
    number.
    """
    for kind in ("aborted", "good"):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("raw", hit(f"{kind}-{number}"))
        producer.flush(30)
        if kind == "good":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return first + 10


def test_committed_records_are_delivered_and_aborted_ones_are_not(lab: Lab) -> None:
    for tier, host in (("entry", "h1"), ("enrich", "h2"), ("outbound", "h3")):
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "transactional.id": "sender"})
    producer.init_transactions(30)
    tiers = tuple(tier for tier in declarations.load("hits").tiers if tier.name != "counts")
    with closing(Auditor(tiers, lab.endpoints)) as auditor, closing(Streams(lab.endpoints.kafka)) as streams:
        missing, sent = auditor.check(), 0

        def is_judged(tier: str, required_ends: dict[str, int]) -> bool:
            """Let the audit look, and tell whether it has judged all records before these ends."""
            missing.extend(auditor.check())
            judged_ends = auditor._audits[tier].done()
            return all(judged_ends.get(place, 0) >= end for place, end in required_ends.items())

        while sent < 200:
            sent = transact(producer, sent)
        raw_ends = streams.bounds(["raw"]).ends

        def send_and_judge() -> bool:
            nonlocal sent
            sent = transact(producer, sent)  # a later record proves that the records before are out
            return is_judged("entry", raw_ends)

        until("the transaction markers are judged", send_and_judge)
        until("every committed record is delivered", lambda: lab.delivered()[0] >= sent)
        until("outbound has no lag", lambda: ends(lab, "outbound") == streams.bounds(["enriched"]).ends)
        until(
            "the audit has read every batch", lambda: is_judged("outbound", streams.bounds(["enriched"]).ends)
        )
    rows = lab.query("select id from delivered order by id")
    assert sorted(row[0] for row in rows) == sorted(f"good-{number}" for number in range(sent))
    assert [loss.sentence for loss in missing] == []
