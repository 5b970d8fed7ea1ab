"""The audit on real Kafka and PostgreSQL: what balances is left alone, and one record in ten thousand is missed by name.

And what publishing does to tiers that are not declared any more, which the audit then forgets.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
import structlog
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ops import endpoints, runbook
from ops.channel import Channel
from ops.cli.audit import verdict
from ops.cli.figures import read_figures
from ops.model import paths
from ops.model.access import Role
from ops.model.incarnation import TierWanted
from ops.model.status import Loss
from pipeline import declare, publish
from pipeline.audit import stream
from pipeline.audit.__main__ import Auditor
from pipeline.declare import Tier
from pipeline.driver.positions import SETTLED_MS
from pipeline.driver.streams import Streams
from pipeline.hits.counts import CAMPAIGN_COUNTS
from pipeline.hits.outbound import DELIVERED
from pipeline.sinks.ledger import Batch, Counts, Ledger
from pipeline.sinks.marks import Marks
from pipeline.sinks.sink import Rows, Written
from pipeline.sinks.table import Once, Totals
from tests.lab import ROOT, Lab, until

pytestmark = pytest.mark.timeout(240)

COUNT = 10_000
PIPELINE = declare.load("pipeline.hits")


@dataclass
class Kafka:
    """Plays tiers: writes records as they do."""

    where: endpoints.Endpoints
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": self.where.kafka, "acks": "all", "enable.idempotence": True})

    def put(  # noqa: PLR0913, PLR0917 — what a record is
        self, stream: str, by: str, source: str, offsets: Iterable[int], at: float, partitions: int = 4
    ) -> None:
        """Write a record for each offset of `source`, spread over the stream's partitions as a grouping would."""
        for offset in offsets:
            headers = {"origin": f"0:{offset}", "path": "0", "from": f"{source}:{offset}", "by": by, "t0": str(int(at * 1000))}
            self.producer.produce(
                stream,
                value=b"{}",
                partition=offset % partitions,
                headers={key: value.encode() for key, value in headers.items()},
                timestamp=int(at * 1000),
            )
            self.producer.poll(0)
        self.producer.flush(30)

    def fill(self, stream: str, end: int, partition: int = 0) -> None:
        """Have a partition of a stream end there at least."""
        with closing(Streams(self.where.kafka)) as streams:
            there = streams.bounds([stream]).ends[f"{stream}/{partition}"]
        for _ in range(there, end):
            self.producer.produce(stream, b"{}", partition=partition)
            self.producer.poll(0)
        self.producer.flush(30)


def lines(lab: Lab, tier: str) -> dict[str, tuple[int, int]]:
    with psycopg.connect(lab.where.postgres) as connection:
        rows = connection.execute("SELECT partition, once, again FROM audit WHERE tier = %s", (tier,)).fetchall()
    return {row[0]: (row[1], row[2]) for row in rows}


def losses(lab: Lab, tier: str) -> list[tuple[str, int]]:
    with psycopg.connect(lab.where.postgres) as connection:
        return connection.execute("SELECT place, records FROM losses WHERE tier = %s ORDER BY number", (tier,)).fetchall()


def begun(lab: Lab, *tiers: Tier) -> Auditor:
    """Return an audit that has looked once, so that what comes now is judged."""
    auditor = Auditor(tiers, lab.where)
    assert auditor.look() == []
    return auditor


def test_a_stream_that_lacks_one_record_in_ten_thousand_is_told_by_its_offset(lab: Lab) -> None:
    entry, kafka, now = PIPELINE.tier("entry"), Kafka(lab.where), time.time()
    auditor = begun(lab, entry)
    kafka.fill("raw", COUNT)
    kafka.put("hits", "entry/1", "raw/0", (offset for offset in range(COUNT) if offset not in {7777, 8000}), now)
    kafka.put("raw.quarantine", "entry/1", "raw/0", [8000], now)
    kafka.put("raw.quarantine", "other/1", "raw/0", [7777], now)
    assert auditor.look() == [], "nothing is claimed yet: the run may still put it out"
    auditor.close()
    auditor = Auditor((entry,), lab.where)  # one that was restarted goes on from the book, and waits for a claim that it has seen itself
    kafka.put("hits", "entry/1", "raw/0", range(COUNT, COUNT + 2), now)
    kafka.put("hits", "entry/1", "raw/0", range(COUNT + 2, COUNT + 4), now + SETTLED_MS / 1000 + 1)
    (missing,) = auditor.look()
    assert "1 records of raw/0 were read by entry and have not come out: offsets 7777;" in missing.sentence
    assert lines(lab, "entry") == {"raw/0": (COUNT + 3, 0)}
    assert losses(lab, "entry") == [("raw/0:7777", 1)]
    kafka.put("hits", "entry/2", "raw/0", range(COUNT - 100, COUNT + 4), now + 2 * SETTLED_MS / 1000)
    assert auditor.look() == [], "a replay is no loss"
    assert lines(lab, "entry")["raw/0"][1] == 104
    assert losses(lab, "entry") == [("raw/0:7777", 1)]
    told_and_settled(lab, auditor, missing.sentence)
    auditor.close()


def told_and_settled(lab: Lab, auditor: Auditor, sentence: str) -> None:
    """A loss is in the channel, where its tier's supervision sees it, until somebody settles it; another one's stale word goes too."""
    with Channel(lab.where.zookeeper) as channel, psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        auditor.tell()
        found = channel.read(paths.loss("entry"), Loss)
        assert found is not None
        assert found.value.sentence == sentence
        auditor.tell()
        assert channel.exists(paths.loss("entry"))
        connection.execute("UPDATE losses SET settled_at = now(), settled_by = 'anna'")
        with closing(Auditor((PIPELINE.tier("entry"),), lab.where)) as later:
            later.tell()
        assert not channel.exists(paths.loss("entry"))


def test_what_a_sender_has_not_committed_is_not_complete_and_marks_of_its_transactions_are_not_waited_for(lab: Lab) -> None:
    entry, kafka = PIPELINE.tier("entry"), Kafka(lab.where)
    sender = Producer({"bootstrap.servers": lab.where.kafka, "transactional.id": "sender"})
    sender.init_transactions(30)
    with closing(Auditor((entry,), lab.where)) as auditor, closing(Streams(lab.where.kafka)) as streams:

        def complete(looks: int) -> float:
            for _ in range(looks):
                assert auditor.look() == []
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
        assert complete(4) <= opened, "ten records have arrived that nobody may read yet"
        sender.commit_transaction(30)
        committed = time.time()
        assert complete(4) <= opened
        kafka.put("hits", "entry/3", "raw/0", range(first, first + 10), time.time())
        assert complete(6) > committed, "nothing comes after the mark of the transaction, and nothing has to"


def test_a_tier_that_is_taken_out_is_forgotten_and_one_whose_stream_is_renamed_begins_anew(lab: Lab) -> None:
    enrich, kafka, now = PIPELINE.tier("enrich"), Kafka(lab.where), time.time()
    auditor = begun(lab, enrich)
    kafka.put("enriched", "enrich/7", "hits/1", range(10), now)
    assert auditor.look() == []
    auditor.close()
    renamed = replace(enrich, outputs=(declare.Stream("hits", "id string"),))
    with closing(Auditor((renamed,), lab.where)) as other:
        assert other.look() == []
        assert other.look() == []
        assert other._audits["enrich"].done() == {"hits/1": 10}, "what had come out has"
    assert lines(lab, "enrich")
    with closing(Auditor((PIPELINE.tier("entry"),), lab.where)) as other:
        other.tell()
    assert not lines(lab, "enrich")


def test_a_tier_that_leaves_records_out_on_purpose_is_not_judged(lab: Lab) -> None:
    enrich, kafka, now = replace(PIPELINE.tier("enrich"), filters=True), Kafka(lab.where), time.time()
    auditor = begun(lab, enrich)
    kafka.put("enriched", "enrich/1", "hits/0", range(0, 100, 2), now)
    kafka.put("enriched", "enrich/1", "hits/0", [100], now + SETTLED_MS / 1000 + 1)
    assert auditor.look() == []
    assert lines(lab, "enrich")["hits/0"] == (51, 0)
    auditor.close()


@dataclass(frozen=True)
class Lossy(Once):
    """A table's writer with a fault: it drops some rows, and counts them as written."""

    drops: frozenset[str] = frozenset()

    def write(self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event) -> Written:
        kept = [number for number, origin in enumerate(rows.origins) if origin not in self.drops]
        columns = {name: [column[number] for number in kept] for name, column in rows.columns.items()}
        super().write(cursor, Rows(columns, [rows.origins[n] for n in kept], [rows.paths[n] for n in kept]), batch, marks, halt)
        return Written(len(rows))


def rows(offsets: Iterable[int]) -> Rows:
    origins = [f"0:{offset}" for offset in offsets]
    texts = {name: [name] * len(origins) for name in ("user", "ad", "campaign", "kind")}
    return Rows({"id": origins, **texts, "at": ["2026-01-01"] * len(origins)}, origins, ["0"] * len(origins))


def ends(offset: int) -> dict[str, int]:
    """Return where each partition ends when the records before `offset` were spread over four."""
    return {f"enriched/{number}": (offset - number + 3) // 4 for number in range(4)}


def test_a_table_that_lacks_one_record_in_ten_thousand_is_told(lab: Lab) -> None:
    with psycopg.connect(lab.where.postgres) as connection:
        connection.execute("TRUNCATE delivered, ledger, tier_epochs, audit, audit_read, losses")
    outbound, kafka, now = PIPELINE.tier("outbound"), Kafka(lab.where), time.time()
    fresh = replace(outbound, inputs=(declare.Stream("enriched", "id string"),))
    shift = Streams(lab.where.kafka).bounds(["enriched"]).ends

    def at(offset: int) -> dict[str, int]:
        return {name: shift[name] + end for name, end in ends(offset).items()}

    auditor = begun(lab, fresh)
    kafka.put("enriched", "enrich/9", "hits/0", range(20_000, 20_000 + 2 * COUNT), now)
    first, second = range(20_000, 20_000 + COUNT), range(20_000 + COUNT, 20_000 + 2 * COUNT)
    good = Ledger(lab.where.postgres, "outbound", 1, DELIVERED)
    good.write(Batch(at(0), at(COUNT)), rows(first), epoch=1)
    good.close()
    assert auditor.look() == []
    lossy = Lossy(DELIVERED.name, DELIVERED.columns, DELIVERED.stamp, DELIVERED.archive, drops=frozenset({f"0:{second[1234]}"}))
    bad = Ledger(lab.where.postgres, "outbound", 1, lossy)
    kafka.put("enriched.quarantine", "outbound/1", "enriched/0", [second[9], second[9]], now)  # one twice, and another went nowhere
    bad.write(Batch(at(COUNT), at(2 * COUNT)), rows(set(second) - {second[9], second[10]}), epoch=1, quarantined=2)
    bad.close()
    (missing,) = auditor.look()
    assert "2 records that outbound was given in batches 1 to 1 are not in delivered; the first may be enriched/2:" in missing.sentence
    assert [count for _, count in losses(lab, "outbound")] == [2]
    assert auditor.look() == []
    auditor.close()


def test_a_replay_writes_batches_of_the_tier_that_move_nothing_and_are_held_against_the_table(lab: Lab) -> None:
    with psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        connection.execute("TRUNCATE delivered, ledger, tier_epochs, audit, audit_read, losses")
        outbound, kafka, now = PIPELINE.tier("outbound"), Kafka(lab.where), time.time()
        fresh = replace(outbound, inputs=(declare.Stream("enriched", "id string"),))
        shift = Streams(lab.where.kafka).bounds(["enriched"]).ends
        places = [{name: shift[name] + end for name, end in ends(offset).items()} for offset in (0, 100, 200)]
        auditor = begun(lab, fresh)
        kafka.put("enriched", "enrich/9", "hits/0", range(60_000, 60_200), now)
        first, second = range(60_000, 60_100), range(60_100, 60_200)
        with closing(Ledger(lab.where.postgres, "outbound", 1, DELIVERED)) as owner, closing(auditor):
            owner.write(Batch(places[0], places[1]), rows(first), epoch=5)
            connection.execute("DELETE FROM delivered WHERE origin = '0:60007'")
            (missing,) = auditor.look()
            assert missing.records == 1
            saved: list[Counts] = []
            with closing(Ledger(lab.where.postgres, "outbound", 1, DELIVERED)) as replay:
                done = replay.replay(100, rows(first), number=7, quarantined=0, save=lambda _, counts: saved.append(counts))
            assert saved == [done]
            assert (done.rows_in, done.rows_out, done.replays) == (100, 1, 99)
            owner.write(Batch(places[1], places[2]), rows(second), epoch=5)  # neither refused, nor read again
            assert auditor.look() == []
            written = connection.execute("SELECT batch, replay, begins = ends FROM ledger ORDER BY batch").fetchall()
            assert written == [(0, None, False), (1, 7, True), (2, None, False)]
            assert connection.execute("SELECT batch FROM delivered WHERE origin = '0:60007'").fetchall() == [(1,)], "the archive finds it"
            lossy = Lossy(DELIVERED.name, DELIVERED.columns, DELIVERED.stamp, DELIVERED.archive, drops=frozenset({"0:60300"}))
            with closing(Ledger(lab.where.postgres, "outbound", 1, lossy)) as replay:
                replay.replay(2, rows([60_300, 60_301]), number=8, quarantined=0, save=lambda *_: None)
            (missing,) = auditor.look()
            assert "batch 3 of outbound wrote 2 rows, and 1 are in the table" in missing.sentence


@dataclass(frozen=True)
class Dropping(Totals):
    """A writer that adds up all rows but one, and counts them all."""

    drops: frozenset[str] = frozenset()

    def write(self, cursor: psycopg.Cursor[Any], rows: Rows, batch: int, marks: Marks, halt: Event) -> Written:
        kept = rows.only([number for number, origin in enumerate(rows.origins) if origin not in self.drops])
        return Written(super().write(cursor, kept, batch, marks, halt).new + len(rows) - len(kept))


def dropping(origin: str) -> Dropping:
    sink = CAMPAIGN_COUNTS
    return Dropping(sink.name, sink.columns, sink.key, sink.counted, drops=frozenset({origin}))


def hits(offsets: Iterable[int]) -> Rows:
    """Return what counts adds up for a view and some clicks."""
    names = [f"0:{offset}" for offset in offsets]
    kinds = [offset % 3 == 0 for offset in offsets]
    added = {"views": [int(view) for view in kinds], "clicks": [int(not view) for view in kinds], "buys": [0] * len(names)}
    return Rows({"campaign": ["a"] * len(names), "window_start": ["2026-01-01"] * len(names), **added}, names, ["0"] * len(names))


def verdict_of(lab: Lab, tier: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(lab.home / "endpoints.json"))
    figures = read_figures()
    return next(verdict(line, figures.lost(tier)) for line in figures.audit if line.tier == tier)


def test_totals_that_grow_by_other_than_their_rows_are_told_whatever_was_there_or_is_folded(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = PIPELINE.tier("counts")
    with psycopg.connect(lab.where.postgres, autocommit=True) as connection, closing(Auditor((counts,), lab.where)) as auditor:
        connection.execute("TRUNCATE campaign_counts, ledger, tier_epochs, marks, audit, audit_read, losses")
        connection.execute("INSERT INTO campaign_counts VALUES ('a', '2026-01-01', 70, 7, 0)")  # before anybody looked
        assert auditor.look() == []
        done = iter(range(0, 10 * COUNT, COUNT))
        at = -COUNT

        def write(sink: Totals, owner: int) -> list[str]:
            nonlocal at
            at = next(done)
            with closing(Ledger(lab.where.postgres, "counts", owner, sink)) as ledger:
                ledger.write(Batch({"enriched/0": at}, {"enriched/0": at + COUNT}), hits(range(at, at + COUNT)), epoch=owner)
            return [missing.sentence for missing in auditor.look()]

        assert write(CAMPAIGN_COUNTS, 1) == []
        assert verdict_of(lab, "counts", monkeypatch) == "balanced by its sums"
        (said,) = write(dropping("0:14321"), 2)
        assert said == (
            "batches 1 to 1 of counts wrote 10000 rows, and views + clicks + buys of campaign_counts grew by 9999: rows are missing, "
            "or somebody has changed it by hand"
        )
        assert [count for _, count in losses(lab, "counts")] == [1]
        assert write(CAMPAIGN_COUNTS, 3) == [], "it is told once"
        connection.execute("UPDATE ledger SET batch = 2, rows_in = 30000, rows_out = 30000, ends = ends WHERE batch = 2")
        connection.execute("DELETE FROM ledger WHERE batch < 2")  # as it is folded
        connection.execute("DELETE FROM campaign_counts")  # what is old is taken out
        assert write(CAMPAIGN_COUNTS, 4) == []
        with closing(Auditor((counts,), lab.where)) as later:
            assert later.look() == [], "the book remembers"
        connection.execute("UPDATE campaign_counts SET buys = buys + 3")
        (missing,) = auditor.look()
        assert missing.records == 3
        assert missing.sentence.startswith(
            "no batch of counts wrote rows, and views + clicks + buys of campaign_counts grew by 3: rows were"
        )


def test_totals_are_compared_as_of_one_commit_while_they_are_written(lab: Lab) -> None:
    tier = replace(PIPELINE.tier("counts"), name="busy", sink=replace(CAMPAIGN_COUNTS, name="busy_counts"))
    assert isinstance(tier.sink, Totals)
    with psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        for statement in tier.sink.statements() * 2:  # published again
            connection.execute(statement)
    over, at = Event(), 0

    def write() -> None:
        nonlocal at
        with closing(Ledger(lab.where.postgres, "busy", 1, tier.sink)) as ledger:  # type: ignore[arg-type]
            while not over.is_set():
                ledger.write(Batch({"enriched/0": at}, {"enriched/0": at + 7}), hits(range(at, at + 7)), epoch=1)
                at += 7

    writer = Thread(target=write)
    with closing(begun(lab, tier)) as auditor:
        writer.start()
        found = [missing for _ in range(50) for missing in auditor.look()]
        over.set()
        writer.join()
    assert found == []
    assert at > 7 * 50


def test_batches_that_do_not_follow_on_each_other_and_records_that_go_nowhere_are_told(lab: Lab) -> None:
    Kafka(lab.where).fill("enriched", 20)
    with psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        connection.execute("TRUNCATE campaign_counts, ledger, tier_epochs, audit, audit_read, losses")
        insert = (
            "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, quarantined, replays)"
            " VALUES ('counts', 1, %s, %s, %s, %s, %s, %s, 0, 0)"
        )
        counts = PIPELINE.tier("counts")
        auditor = begun(lab, counts)
        connection.execute(insert, (0, '{"enriched/0": 0}', '{"enriched/0": 10}', 10, 10, 0))
        connection.execute(insert, (1, '{"enriched/0": 15}', '{"enriched/0": 20}', 5, 4, 1))
        connection.execute("INSERT INTO campaign_counts VALUES ('a', '2026-01-01', 14, 0, 0)")
    said = [missing.sentence for missing in auditor.look()]
    assert "batch 1 of counts begins with offset 15 of enriched/0, the one before it ended at 10: 5 records were skipped" in said[0]
    assert "was given 5 records and 1 of them went nowhere" in said[1]
    assert lines(lab, "counts") == {"enriched/0": (15, 0)}
    assert losses(lab, "counts") == [("enriched/0:10", 5), ("enriched/0:15", 1)]
    auditor.close()
    with closing(Auditor((counts,), lab.where)) as later:
        assert later.look() == [], "the book remembers"


def transacted(lab: Lab) -> int:
    """Put ten records into raw/0, five in each of two transactions, between them three that are taken back; return the first offset.

    Of the 15 places from there on 5 and 9 have a mark, 6 to 8 what was taken back.
    """
    with closing(Streams(lab.where.kafka)) as streams:
        first = streams.bounds(["raw"]).ends["raw/0"]
    producer = Producer({"bootstrap.servers": lab.where.kafka, "transactional.id": "outside"})
    producer.init_transactions(30)
    for count, taken_back in ((5, False), (3, True), (5, False)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce("raw", str(number), partition=0)
        producer.flush(30)
        if taken_back:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return first


def test_where_a_sender_uses_transactions_only_records_are_missed(lab: Lab) -> None:
    first, kafka, now = transacted(lab), Kafka(lab.where), time.time()
    committed = {*range(first, first + 5), *range(first + 10, first + 15)}
    entry = PIPELINE.tier("entry")
    with closing(begun(lab, entry)) as auditor:
        kafka.put("hits", "entry/8", "raw/0", sorted(committed - {first + 12}), now)
        kafka.put("hits", "entry/8", "raw/0", [first + 15], now + SETTLED_MS / 1000 + 1)
        (missing,) = auditor.look()
    assert f"1 records of raw/0 were read by entry and have not come out: offsets {first + 12};" in missing.sentence
    uncounted = replace(CAMPAIGN_COUNTS, counted=())
    counts = replace(PIPELINE.tier("counts"), name="direct", inputs=PIPELINE.tier("entry").inputs, sink=uncounted)
    insert = (
        "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, quarantined, replays)"
        " VALUES ('direct', 1, %s, %s, %s, %s, %s, %s, 0, 0)"
    )
    with closing(begun(lab, counts)) as auditor, psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        connection.execute(insert, (0, json.dumps({"raw/0": first}), json.dumps({"raw/0": first + 9}), 9, 5, 4))
        assert auditor.look() == []
        connection.execute(insert, (1, json.dumps({"raw/0": first + 9}), json.dumps({"raw/0": first + 15}), 6, 4, 2))
        (missing,) = auditor.look()
    assert "was given 6 records and 1 of them went nowhere" in missing.sentence


def test_partitions_that_are_added_are_looked_at(lab: Lab) -> None:
    admin, kafka, now = AdminClient({"bootstrap.servers": lab.where.kafka}), Kafka(lab.where), time.time()
    for made in admin.create_topics([NewTopic("grown", num_partitions=1, replication_factor=-1)]).values():
        made.result()
    tier = replace(PIPELINE.tier("entry"), name="growing", outputs=(declare.Stream("grown", "id string"),))
    with closing(begun(lab, tier)) as auditor:
        for made in admin.create_partitions([NewPartitions("grown", 4)]).values():
            made.result()
        kafka.put("grown", "growing/1", "raw/1", range(100), now)
        kafka.put("grown", "growing/1", "raw/1", range(100, 104), now + SETTLED_MS / 1000 + 1)
        assert auditor.look() == []
    assert lines(lab, "growing") == {"raw/1": (104, 0)}


def test_a_ledger_that_was_begun_anew_is_looked_at(lab: Lab) -> None:
    tier = replace(PIPELINE.tier("counts"), name="renewed")
    insert = (
        "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, quarantined, replays)"
        " VALUES ('renewed', 1, %s, %s, %s, %s, %s, 0, 0, 0)"
    )
    with psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        for number in range(3):
            begins, ends = json.dumps({"enriched/0": 100 * number}), json.dumps({"enriched/0": 100 * number + 100})
            connection.execute(insert, (number, begins, ends, 100, 100))
        with closing(begun(lab, tier)) as auditor:
            connection.execute("DELETE FROM ledger WHERE tier = 'renewed'")
            connection.execute(insert, (0, '{"enriched/0": 0}', '{"enriched/0": 7}', 7, 7))
            assert auditor.look() == []
            assert auditor._audits["renewed"].done() == {"enriched/0": 7}, "not what it was before"


def wanted(channel: Channel, tier: str) -> bool | None:
    found = channel.read(paths.wanted(tier), TierWanted)
    return None if found is None else found.value.running


def test_a_tier_that_is_not_declared_any_more_is_stopped_until_it_is_declared_again(lab: Lab) -> None:
    specs = {spec.name: spec for spec in declare.load("pipeline.hits").specs()}
    names = {str(name) for name in specs}
    with Channel(lab.where.zookeeper, lab.where.credential(Role.ADMIN)) as channel:
        channel.put(paths.tier("gone"), specs[min(specs)])
        runbook.want(channel, "gone", by="anna", running=True)
        runbook.want(channel, min(names), by="anna", running=False)
        assert publish.retire(channel, names) == ["gone"]
        assert wanted(channel, "gone") is False
        assert publish.retire(channel, names) == [], "it is said once"
        assert publish.retire(channel, {*names, "gone"}) == []
        assert wanted(channel, "gone") is True
        assert wanted(channel, min(names)) is False, "what a person stopped stays stopped"
        channel.delete(paths.tier("gone"))
        channel.delete(paths.wanted(min(names)))


def test_what_was_put_out_while_nobody_looked_is_read_in_steps_and_judged_alike(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, kafka, now = PIPELINE.tier("entry"), Kafka(lab.where), time.time() + 60  # later than all that is there
    monkeypatch.setattr(stream, "BACKLOG", 500)
    monkeypatch.setattr(stream, "STEP_MS", 5_000)
    kafka.put("hits", "entry/5", "raw/2", [0], now - 1)
    with closing(begun(lab, entry)) as auditor, closing(Streams(lab.where.kafka)) as streams:
        kafka.fill("raw", 3000, partition=2)
        for first in range(1, 3000, 100):
            kafka.put("hits", "entry/5", "raw/2", (each for each in range(first, first + 100) if each != 777), now + first / 50)
        lost, reached = [], []
        while streams.bounds(["hits"]).ends.items() - auditor._audits["entry"]._read.items():  # type: ignore[union-attr]
            lost += auditor.look()
            reached.append(auditor._audits["entry"].done()["raw/2"])
    assert len(reached) > 5
    assert reached == sorted(reached)
    assert [each.place for each in lost] == ["raw/2:777"]


def test_what_came_out_and_was_gone_before_it_was_looked_at_is_neither_balanced_nor_lost(lab: Lab) -> None:
    admin, kafka, now = AdminClient({"bootstrap.servers": lab.where.kafka}), Kafka(lab.where), time.time()
    for made in admin.create_topics([NewTopic("passing", num_partitions=1, replication_factor=-1)]).values():
        made.result()
    tier = replace(PIPELINE.tier("entry"), name="passing", outputs=(declare.Stream("passing", "id string"),))
    with closing(begun(lab, tier)) as auditor:
        kafka.put("passing", "passing/1", "raw/1", range(10), now, partitions=1)
        assert auditor.look() == []
        kafka.put("passing", "passing/1", "raw/1", range(10, 100), now, partitions=1)
        for deleted in admin.delete_records([TopicPartition("passing", 0, 80)]).values():
            deleted.result()
        assert auditor.look() == []
        kafka.put("passing", "passing/1", "raw/1", range(100, 104), now, partitions=1)
        assert auditor.look() == []
        assert auditor._audits["passing"].done() == {"raw/1": 104}
    assert lab.ask("SELECT unseen FROM audit WHERE tier = 'passing'") == [(90,)]


def test_what_retention_took_before_it_was_looked_at_is_neither_balanced_nor_lost(lab: Lab) -> None:
    """One record that has expired hid all others of a look."""
    admin, kafka, now = AdminClient({"bootstrap.servers": lab.where.kafka}), Kafka(lab.where), time.time()
    for made in admin.create_topics([NewTopic("expiring", num_partitions=1, replication_factor=-1)]).values():
        made.result()
    sink = Once("expired", {"id": "text"})
    tier = replace(PIPELINE.tier("outbound"), name="late", inputs=(declare.Stream("expiring", "id string"),), sink=sink)
    with psycopg.connect(lab.where.postgres, autocommit=True) as connection:
        for statement in sink.statements():
            connection.execute(statement)
    with closing(begun(lab, tier)) as auditor, closing(Ledger(lab.where.postgres, "late", 1, sink)) as ledger:
        kafka.put("expiring", "enrich/9", "hits/0", range(100), now, partitions=1)
        left_out = rows(offset for offset in range(100) if offset not in {5, 70})
        ledger.write(Batch({"expiring/0": 0}, {"expiring/0": 100}), replace(left_out, columns={"id": left_out.origins}), epoch=1)
        with psycopg.connect(lab.where.postgres, autocommit=True) as connection:  # its writer counts what it has dropped
            connection.execute("UPDATE ledger SET rows_out = 100, filtered = 0 WHERE tier = 'late'")
        for deleted in admin.delete_records([TopicPartition("expiring", 0, 20)]).values():
            deleted.result()
        (missing,) = auditor.look()
    assert (missing.records, missing.place) == (1, "expiring/0:70")
    assert lab.ask("SELECT unseen FROM audit WHERE tier = 'late'") == [(20,)]


def test_a_dropped_record_in_ten_thousand_is_told_within_a_minute(lab: Lab) -> None:
    """By the audit as it runs, where tiers' supervision sees it: of a stream, of a table's rows, of totals."""
    with psycopg.connect(lab.where.postgres) as connection:
        connection.execute("TRUNCATE delivered, campaign_counts, ledger, tier_epochs, marks, audit, audit_read, frontier, losses")
    kafka, tiers, told = Kafka(lab.where), ("enrich", "outbound", "counts"), dict[str, float]()
    with closing(Streams(lab.where.kafka)) as streams, auditing(lab), Channel(lab.where.zookeeper) as channel:
        looked = "SELECT count(DISTINCT tier) FROM audit_read WHERE tier IN ('enrich', 'outbound', 'counts')"
        until("the audit has looked at all three", lambda: lab.ask(looked) == [(3,)])
        first, begins = streams.bounds(["hits"]).ends["hits/3"], streams.bounds(["enriched"]).ends
        kafka.fill("hits", first + COUNT + 2, partition=3)
        begun = time.monotonic()
        put = [first + each for each in range(COUNT + 1) if each != 7777]
        kafka.put("enriched", "enrich/40", "hits/3", put, time.time())
        batch = Batch(begins, streams.bounds(["enriched"]).ends)
        lossy = Lossy(DELIVERED.name, DELIVERED.columns, DELIVERED.stamp, DELIVERED.archive, drops=frozenset({f"0:{put[4321]}"}))
        with closing(Ledger(lab.where.postgres, "outbound", 1, lossy)) as ledger:
            ledger.write(batch, rows(put), epoch=1)
        with closing(Ledger(lab.where.postgres, "counts", 1, dropping(f"0:{put[99]}"))) as ledger:
            ledger.write(batch, hits(put), epoch=1)
        while len(told) < len(tiers) and time.monotonic() < begun + 60:
            kafka.put("enriched", "enrich/40", "hits/3", [put[-1] + 1], time.time())  # the tier goes on, once in a while
            told |= {tier: time.monotonic() - begun for tier in tiers if tier not in told and channel.exists(paths.loss(tier))}
            time.sleep(0.2)
        said = {tier: loss.value.sentence for tier in tiers if (loss := channel.read(paths.loss(tier), Loss)) is not None}
    structlog.get_logger().info("told after seconds", **told)
    assert told.keys() == set(tiers), f"told within a minute: {told}"
    assert f"offsets {put[7776] + 1};" in said["enrich"]
    assert "1 records that outbound was given" in said["outbound"]
    assert "wrote 10000 rows, and views + clicks + buys of campaign_counts grew by 9999" in said["counts"]


@contextmanager
def auditing(lab: Lab) -> Iterator[None]:
    """Run the audit as the platform does."""
    with (lab.home / "audit.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "pipeline.audit"], env=lab.env, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0, (lab.home / "audit.log").read_text()
