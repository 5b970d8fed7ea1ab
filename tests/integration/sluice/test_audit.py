"""The audit of streams on real Kafka and PostgreSQL: balanced output is accepted, and one missing
record in ten thousand is named.

Publishing without a tier makes the audit forget the tier.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import psycopg
import pytest
import structlog
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from hits.counts import CAMPAIGN_COUNTS
from hits.outbound import DELIVERED
from sluice.api import declarations
from sluice.audit import stream_audit
from sluice.audit.__main__ import Auditor
from sluice.commands import publish
from sluice.kafka.reader import Streams
from sluice.sinks.batches import Batch
from sluice.sinks.ledger import Ledger
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.status import Loss
from sluice_ops.operations import requests
from tests.integration.sluice.audit_writers import (
    COUNT,
    PIPELINE,
    Kafka,
    Lossy,
    dropping,
    hits,
    lines,
    losses,
    rows,
    started_audit,
)
from tests.lab import ROOT, Lab, until

pytestmark = pytest.mark.timeout(240)


def test_one_missing_record_in_ten_thousand_is_named_by_its_offset(lab: Lab) -> None:
    entry, kafka, now = PIPELINE.tier("entry"), Kafka(lab.endpoints), time.time()
    auditor = started_audit(lab, entry)
    kafka.fill("raw", COUNT)
    kafka.put(
        "hits", "entry/1", "raw/0", (offset for offset in range(COUNT) if offset not in {7777, 8000}), now
    )
    kafka.put("raw.quarantine", "entry/1", "raw/0", [8000], now, acked=0)
    kafka.put("raw.quarantine", "other/1", "raw/0", [7777], now)
    assert auditor.check() == [], "no later record acknowledges the offset: the run may still write it"
    auditor.close()
    auditor = Auditor(
        (entry,), lab.endpoints
    )  # a restarted audit continues from its book, and waits for an acknowledgement of its own time
    kafka.put("hits", "entry/1", "raw/0", range(COUNT, COUNT + 2), now)
    kafka.put("hits", "entry/1", "raw/0", range(COUNT + 2, COUNT + 4), now)
    (missing,) = auditor.check()
    assert "1 records of raw/0 were read by entry and have not come out: offsets 7777;" in missing.sentence
    assert lines(lab, "entry") == {"raw/0": (COUNT + 3, 0)}
    assert losses(lab, "entry") == [("raw/0:7777", 1)]
    kafka.put("hits", "entry/2", "raw/0", range(COUNT - 100, COUNT + 4), now)
    assert auditor.check() == [], "a replay is no loss"
    assert lines(lab, "entry")["raw/0"][1] == 104
    assert losses(lab, "entry") == [("raw/0:7777", 1)]
    assert_reported_until_settled(lab, auditor, missing.sentence)
    auditor.close()


def assert_reported_until_settled(lab: Lab, auditor: Auditor, sentence: str) -> None:
    """Assert that a loss is in the channel until it is settled, and that a stale report is removed.

    The tier's supervision reads the report there.
    """
    with (
        Channel(lab.endpoints.zookeeper) as channel,
        psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection,
    ):
        auditor.report()
        loss = channel.read(paths.loss("entry"), Loss)
        assert loss is not None
        assert loss.value.sentence == sentence
        auditor.report()
        assert channel.exists(paths.loss("entry"))
        connection.execute("UPDATE losses SET settled_at = now(), settled_by = 'anna'")
        with closing(Auditor((PIPELINE.tier("entry"),), lab.endpoints)) as later:
            later.report()
        assert not channel.exists(paths.loss("entry"))


def test_open_transactions_are_incomplete_and_markers_do_not_count(
    lab: Lab,
) -> None:
    entry, kafka = PIPELINE.tier("entry"), Kafka(lab.endpoints)
    sender = Producer({"bootstrap.servers": lab.endpoints.kafka, "transactional.id": "sender"})
    sender.init_transactions(30)
    with (
        closing(Auditor((entry,), lab.endpoints)) as auditor,
        closing(Streams(lab.endpoints.kafka)) as streams,
    ):

        def complete(looks: int) -> float:
            for _ in range(looks):
                assert auditor.check() == []
            return auditor.metrics.complete["entry"]

        kafka.fill("raw", 1)
        kafka.put("hits", "entry/3", "raw/0", range(streams.bounds(["raw"]).ends["raw/0"]), time.time())
        assert complete(2) > 0
        first, opened = streams.bounds(["raw"]).ends["raw/0"], time.time()
        sender.begin_transaction()
        for _ in range(10):
            sender.produce("raw", b"{}", partition=0)
        sender.flush(30)
        assert complete(4) <= time.time()
        assert complete(4) <= opened, "ten records have arrived that are not committed yet"
        sender.commit_transaction(30)
        committed = time.time()
        assert complete(4) <= opened
        kafka.put("hits", "entry/3", "raw/0", range(first, first + 10), time.time())
        assert complete(6) > committed, "no record follows the transaction's marker, and none has to"


def test_a_removed_tier_is_forgotten_and_a_renamed_stream_starts_over(lab: Lab) -> None:
    enrich, kafka, now = PIPELINE.tier("enrich"), Kafka(lab.endpoints), time.time()
    auditor = started_audit(lab, enrich)
    kafka.put("enriched", "enrich/7", "hits/1", range(10), now)
    assert auditor.check() == []
    auditor.close()
    renamed = replace(enrich, outputs=(declarations.Stream("hits", "id string"),))
    with closing(Auditor((renamed,), lab.endpoints)) as other:
        assert other.check() == []
        assert other.check() == []
        assert other._audits["enrich"].done() == {"hits/1": 10}, "earlier output still counts"
    assert lines(lab, "enrich")
    with closing(Auditor((PIPELINE.tier("entry"),), lab.endpoints)) as other:
        other.report()
    assert not lines(lab, "enrich")


def test_a_tier_that_leaves_records_out_on_purpose_is_not_judged(lab: Lab) -> None:
    enrich, kafka, now = replace(PIPELINE.tier("enrich"), filters=True), Kafka(lab.endpoints), time.time()
    auditor = started_audit(lab, enrich)
    kafka.put("enriched", "enrich/1", "hits/0", range(0, 100, 2), now)
    kafka.put("enriched", "enrich/1", "hits/0", [100], now)
    assert auditor.check() == []
    assert lines(lab, "enrich")["hits/0"] == (51, 0)
    auditor.close()


def write_in_transactions(lab: Lab) -> int:
    """Write ten records to raw/0 in two committed transactions, with an aborted one between them;
    return the first offset.

    Of the 15 offsets, 5 and 9 are transaction markers, and 6 to 8 are aborted records.
    """
    with closing(Streams(lab.endpoints.kafka)) as streams:
        first = streams.bounds(["raw"]).ends["raw/0"]
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "transactional.id": "outside"})
    producer.init_transactions(30)
    for count, aborted in ((5, False), (3, True), (5, False)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce("raw", str(number), partition=0)
        producer.flush(30)
        if aborted:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return first


def test_a_sender_with_transactions_misses_only_real_records(lab: Lab) -> None:
    first, kafka, now = write_in_transactions(lab), Kafka(lab.endpoints), time.time()
    committed = {*range(first, first + 5), *range(first + 10, first + 15)}
    entry = PIPELINE.tier("entry")
    with closing(started_audit(lab, entry)) as auditor:
        kafka.put("hits", "entry/8", "raw/0", sorted(committed - {first + 12}), now)
        kafka.put("hits", "entry/8", "raw/0", [first + 15], now)
        (missing,) = auditor.check()
    assert (
        f"1 records of raw/0 were read by entry and have not come out: offsets {first + 12};"
        in missing.sentence
    )
    uncounted = replace(CAMPAIGN_COUNTS, counted=())
    counts = replace(
        PIPELINE.tier("counts"), name="direct", inputs=PIPELINE.tier("entry").inputs, sink=uncounted
    )
    insert = (
        "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, "
        "quarantined, replays) VALUES ('direct', 1, %s, %s, %s, %s, %s, %s, 0, 0)"
    )
    with (
        closing(started_audit(lab, counts)) as auditor,
        psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection,
    ):
        connection.execute(
            insert, (0, json.dumps({"raw/0": first}), json.dumps({"raw/0": first + 9}), 9, 5, 4)
        )
        assert auditor.check() == []
        connection.execute(
            insert, (1, json.dumps({"raw/0": first + 9}), json.dumps({"raw/0": first + 15}), 6, 4, 2)
        )
        (missing,) = auditor.check()
    assert "read 6 records, and 1 of them went nowhere" in missing.sentence


def test_added_partitions_are_audited(lab: Lab) -> None:
    admin, kafka, now = (
        AdminClient({"bootstrap.servers": lab.endpoints.kafka}),
        Kafka(lab.endpoints),
        time.time(),
    )
    for created in admin.create_topics([NewTopic("grown", num_partitions=1, replication_factor=-1)]).values():
        created.result()
    tier = replace(
        PIPELINE.tier("entry"), name="growing", outputs=(declarations.Stream("grown", "id string"),)
    )
    with closing(started_audit(lab, tier)) as auditor:
        for created in admin.create_partitions([NewPartitions("grown", 4)]).values():
            created.result()
        kafka.put("grown", "growing/1", "raw/1", range(100), now)
        kafka.put("grown", "growing/1", "raw/1", range(100, 104), now)
        assert auditor.check() == []
    assert lines(lab, "growing") == {"raw/1": (104, 0)}


def wanted(channel: Channel, tier: str) -> bool | None:
    versioned = channel.read(paths.wanted(tier), TierWanted)
    return None if versioned is None else versioned.value.running


def test_an_undeclared_tier_counts_as_stopped_until_it_is_declared_again(lab: Lab) -> None:
    specs = {spec.name: spec for spec in declarations.load("hits").specs()}
    names = {str(name) for name in specs}
    with Channel(lab.endpoints.zookeeper, lab.endpoints.credential(Role.ADMIN)) as channel:
        channel.put(paths.tier("gone"), specs[min(specs)])
        requests.want(channel, "gone", by="anna", running=True)
        requests.want(channel, min(names), by="anna", running=False)
        assert publish.stop_undeclared(channel, names) == ["gone"]
        assert wanted(channel, "gone") is False
        assert publish.stop_undeclared(channel, names) == [], "a stopped tier is reported once"
        assert publish.stop_undeclared(channel, {*names, "gone"}) == []
        assert wanted(channel, "gone") is True
        assert wanted(channel, min(names)) is False, "a tier that a person stopped stays stopped"
        channel.delete(paths.tier("gone"))
        channel.delete(paths.wanted(min(names)))


def test_output_missed_while_the_audit_was_down_is_read_later_in_steps(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, kafka, now = (
        AdminClient({"bootstrap.servers": lab.endpoints.kafka}),
        Kafka(lab.endpoints),
        time.time(),
    )
    stamped = NewTopic(
        "stepped", num_partitions=4, replication_factor=-1, config={"message.timestamp.type": "CreateTime"}
    )
    for created in admin.create_topics([stamped]).values():
        created.result()
    tier = replace(
        PIPELINE.tier("entry"), name="stepping", outputs=(declarations.Stream("stepped", "id string"),)
    )
    monkeypatch.setattr(stream_audit, "BACKLOG", 500)
    monkeypatch.setattr(stream_audit, "STEP_MS", 5_000)
    kafka.put("stepped", "stepping/5", "raw/2", [0], now - 1)
    with closing(started_audit(lab, tier)) as auditor, closing(Streams(lab.endpoints.kafka)) as streams:
        kafka.fill("raw", 3000, partition=2)
        for first in range(1, 3000, 100):
            kafka.put(
                "stepped",
                "stepping/5",
                "raw/2",
                (offset for offset in range(first, first + 100) if offset != 777),
                now + first / 50,
            )
        lost, audited_ends = [], []
        while streams.bounds(["stepped"]).ends.items() - auditor._audits["stepping"]._read.items():  # type: ignore[union-attr]
            lost += auditor.check()
            audited_ends.append(auditor._audits["stepping"].done()["raw/2"])
    assert len(audited_ends) > 5
    assert audited_ends == sorted(audited_ends)
    assert [missing.place for missing in lost] == ["raw/2:777"]


def new_tier(lab: Lab, name: str) -> declarations.Tier:
    """Return a tier that reads `raw` and writes a new stream with one partition, named after the
    tier.
    """
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for created in admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=-1)]).values():
        created.result()
    return replace(PIPELINE.tier("entry"), name=name, outputs=(declarations.Stream(name, "id string"),))


def since(lab: Lab, tier: str) -> list[tuple[int, bool]]:
    with psycopg.connect(lab.endpoints.postgres) as connection:
        return connection.execute("SELECT since, partial = '' FROM audit WHERE tier = %s", (tier,)).fetchall()


def test_a_tier_is_audited_from_its_first_record_however_late(lab: Lab) -> None:
    tier, kafka, an_hour_ago = new_tier(lab, "latecomer"), Kafka(lab.endpoints), time.time() - 3600
    kafka.fill("raw", 110, partition=3)
    written = (offset for offset in range(100) if offset not in {0, 50})
    kafka.put("latecomer", "latecomer/1", "raw/3", written, an_hour_ago, partitions=1)
    kafka.put("latecomer", "latecomer/1", "raw/3", range(100, 104), an_hour_ago, partitions=1)
    with closing(Auditor((tier,), lab.endpoints)) as auditor:
        (missing,) = auditor.check()
    assert (
        "2 records of raw/3 were read by latecomer and have not come out: offsets 0, 50;" in missing.sentence
    )
    assert lines(lab, "latecomer") == {"raw/3": (102, 0)}
    assert since(lab, "latecomer") == [(0, True)]


def test_the_audit_records_where_it_began_if_old_output_is_gone(lab: Lab) -> None:
    tier, kafka, now = new_tier(lab, "truncated"), Kafka(lab.endpoints), time.time()
    kafka.fill("raw", 110, partition=3)
    kafka.put("truncated", "truncated/1", "raw/3", range(100), now, partitions=1)
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    for deleted in admin.delete_records([TopicPartition("truncated", 0, 90)]).values():
        deleted.result()
    with closing(Auditor((tier,), lab.endpoints)) as auditor:
        assert auditor.check() == []
        kafka.put("truncated", "truncated/1", "raw/3", range(100, 104), now, partitions=1)
        assert auditor.check() == []
    assert since(lab, "truncated") == [(100, False)]


def test_output_expired_before_it_was_read_is_neither_balanced_nor_lost(lab: Lab) -> None:
    admin, kafka, now = (
        AdminClient({"bootstrap.servers": lab.endpoints.kafka}),
        Kafka(lab.endpoints),
        time.time(),
    )
    for created in admin.create_topics(
        [NewTopic("passing", num_partitions=1, replication_factor=-1)]
    ).values():
        created.result()
    tier = replace(
        PIPELINE.tier("entry"), name="passing", outputs=(declarations.Stream("passing", "id string"),)
    )
    with closing(started_audit(lab, tier)) as auditor:
        kafka.put("passing", "passing/1", "raw/1", range(10), now, partitions=1)
        assert auditor.check() == []
        kafka.put("passing", "passing/1", "raw/1", range(10, 100), now, partitions=1)
        for deleted in admin.delete_records([TopicPartition("passing", 0, 80)]).values():
            deleted.result()
        assert auditor.check() == []
        kafka.put("passing", "passing/1", "raw/1", range(100, 104), now, partitions=1)
        assert auditor.check() == []
        assert auditor._audits["passing"].done() == {"raw/1": 104}
    assert lab.query("SELECT unseen FROM audit WHERE tier = 'passing'") == [(90,)]


def test_a_dropped_record_in_ten_thousand_is_reported_in_a_minute(lab: Lab) -> None:
    """The running audit reports the loss to the channel: of a stream, of a table's rows, and of
    totals.
    """
    with psycopg.connect(lab.endpoints.postgres) as connection:
        connection.execute(
            "TRUNCATE delivered, campaign_counts, ledger, tier_epochs, marks, audit, audit_read, frontier, "
            "losses"
        )
    kafka, tiers, reported = Kafka(lab.endpoints), ("enrich", "outbound", "counts"), dict[str, float]()
    with (
        closing(Streams(lab.endpoints.kafka)) as streams,
        auditing(lab),
        Channel(lab.endpoints.zookeeper) as channel,
    ):
        looked = "SELECT count(DISTINCT tier) FROM audit_read WHERE tier IN ('enrich', 'outbound', 'counts')"
        until("the audit has looked at all three", lambda: lab.query(looked) == [(3,)])
        with psycopg.connect(lab.endpoints.postgres) as connection:  # losses of other tests in these streams
            connection.execute("UPDATE losses SET settled_at = now(), settled_by = 'test'")
        until("no loss is reported", lambda: not any(channel.exists(paths.loss(tier)) for tier in tiers))
        first = streams.bounds(["hits"]).ends["hits/3"]
        kafka.put(
            "enriched", "enrich/40", "hits/3", range(first), time.time()
        )  # output for records of other tests
        begins = streams.bounds(["enriched"]).ends
        kafka.fill("hits", first + COUNT + 2, partition=3)
        started = time.monotonic()
        offsets = [first + offset for offset in range(COUNT + 1) if offset != 7777]
        kafka.put("enriched", "enrich/40", "hits/3", offsets, time.time())
        batch = Batch(begins, streams.bounds(["enriched"]).ends)
        lossy = Lossy(
            DELIVERED.name,
            DELIVERED.columns,
            DELIVERED.stamp,
            DELIVERED.archive,
            drops=frozenset({f"0:{offsets[4321]}"}),
        )
        with closing(Ledger(lab.endpoints.postgres, "outbound", 1, lossy)) as ledger:
            ledger.write(batch, rows(offsets), epoch=1)
        with closing(Ledger(lab.endpoints.postgres, "counts", 1, dropping(f"0:{offsets[99]}"))) as ledger:
            ledger.write(batch, hits(offsets), epoch=1)
        while len(reported) < len(tiers) and time.monotonic() < started + 60:
            kafka.put(
                "enriched", "enrich/40", "hits/3", [offsets[-1] + 1], time.time()
            )  # the tier continues slowly
            reported |= {
                tier: time.monotonic() - started
                for tier in tiers
                if tier not in reported and channel.exists(paths.loss(tier))
            }
            time.sleep(0.2)
        sentences = {
            tier: loss.value.sentence
            for tier in tiers
            if (loss := channel.read(paths.loss(tier), Loss)) is not None
        }
    structlog.get_logger().info("losses reported after seconds", **reported)
    assert reported.keys() == set(tiers), f"reported within a minute: {reported}"
    assert f"offsets {offsets[7776] + 1};" in sentences["enrich"]
    assert "1 records that outbound read" in sentences["outbound"]
    assert (
        "wrote 10000 rows, and views + clicks + buys of campaign_counts grew by 9999" in sentences["counts"]
    )


@contextmanager
def auditing(lab: Lab) -> Iterator[None]:
    """Run the audit as its own process."""
    with (lab.home / "audit.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sluice.audit"], env=lab.env, cwd=ROOT, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0, (lab.home / "audit.log").read_text()
