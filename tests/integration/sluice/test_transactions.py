"""A sender that uses Kafka's transactions: what it has committed arrives once, what it took back never, and nobody calls its marks lost."""

import json
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice_ops.model.incarnation import State
from tests.integration.sluice.given import ends
from tests.lab import Lab, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def hit(identity: str) -> bytes:
    return json.dumps(
        {"id": identity, "user": "u", "ad": "ad-1", "kind": "view", "at": int(time.time() * 1000)}
    ).encode()


def transact(producer: Producer, first: int) -> int:
    """Send ten records in a transaction that is taken back, and ten in one that is committed; return the number of the next."""
    for kind in ("back", "good"):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("raw", hit(f"{kind}-{number}"))
        producer.flush(30)
        if kind == "good":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return first + 10


def test_what_was_committed_arrives_and_what_was_taken_back_does_not(lab: Lab) -> None:
    for tier, host in (("entry", "h1"), ("enrich", "h2"), ("outbound", "h3")):
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "transactional.id": "sender"})
    producer.init_transactions(30)
    tiers = tuple(each for each in declarations.load("hits").tiers if each.name != "counts")
    with closing(Auditor(tiers, lab.endpoints)) as auditor, closing(Streams(lab.endpoints.kafka)) as streams:
        missing, sent = auditor.look(), 0

        def judged(tier: str, there: dict[str, int]) -> bool:
            """Look, and tell whether the audit has judged all before these ends."""
            missing.extend(auditor.look())
            done = auditor._audits[tier].done()
            return all(done.get(place, 0) >= end for place, end in there.items())

        while sent < 200:
            sent = transact(producer, sent)
        there = streams.bounds(["raw"]).ends

        def judged_meanwhile() -> bool:
            nonlocal sent
            sent = transact(producer, sent)  # what is put out later vouches for what came before
            return judged("entry", there)

        until("the marks of transactions are judged", judged_meanwhile)
        until("all that was committed is delivered", lambda: lab.delivered()[0] >= sent)
        until("nothing waits", lambda: ends(lab, "outbound") == streams.bounds(["enriched"]).ends)
        until("the audit has seen every batch", lambda: judged("outbound", streams.bounds(["enriched"]).ends))
    rows = lab.query("select id from delivered order by id")
    assert sorted(row[0] for row in rows) == sorted(f"good-{number}" for number in range(sent))
    assert [each.sentence for each in missing] == []
