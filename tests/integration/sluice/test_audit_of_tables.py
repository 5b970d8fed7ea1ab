"""The audit of tables on real Kafka and PostgreSQL: rows, totals and the ledger, with one record in
ten thousand missing.
"""

import json
import time
from contextlib import closing
from dataclasses import replace
from threading import Event, Thread

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from hits.counts import CAMPAIGN_COUNTS
from hits.outbound import DELIVERED
from sluice.api import declarations
from sluice.api.declarations import Tier
from sluice.api.sink import Rows, Sink
from sluice.audit.__main__ import Auditor
from sluice.kafka.reader import Streams
from sluice.sinks.batches import Batch
from sluice.sinks.ledger import Counts, Ledger
from sluice.sinks.several import Sinks
from sluice.sinks.table import Once, Totals
from sluice_ops.model.tier import Kind
from sluice_ops.queries.figures import read_figures
from sluice_ops.queries.in_flight import measure
from sluice_ops.queries.verdicts import verdict
from tests.integration.sluice.audit_writers import (
    COUNT,
    PIPELINE,
    Kafka,
    Lossy,
    dropping,
    ends,
    hits,
    lines,
    losses,
    rows,
    started_audit,
)
from tests.lab import Lab

pytestmark = pytest.mark.timeout(240)


def test_a_table_without_one_record_in_ten_thousand_is_reported(lab: Lab) -> None:
    with psycopg.connect(lab.endpoints.postgres) as connection:
        connection.execute("TRUNCATE delivered, ledger, tier_epochs, audit, audit_read, losses")
    outbound, kafka, now = PIPELINE.tier("outbound"), Kafka(lab.endpoints), time.time()
    fresh = replace(outbound, inputs=(declarations.Stream("enriched", "id string"),))
    shift = Streams(lab.endpoints.kafka).bounds(["enriched"]).ends

    def positions(offset: int) -> dict[str, int]:
        return {name: shift[name] + end for name, end in ends(offset).items()}

    auditor = started_audit(lab, fresh)
    kafka.put("enriched", "enrich/9", "hits/0", range(20_000, 20_000 + 2 * COUNT), now)
    first, second = range(20_000, 20_000 + COUNT), range(20_000 + COUNT, 20_000 + 2 * COUNT)
    good = Ledger(lab.endpoints.postgres, "outbound", 1, DELIVERED)
    good.write(Batch(positions(0), positions(COUNT)), rows(first), epoch=1)
    good.close()
    assert auditor.check() == []
    lossy = Lossy(
        DELIVERED.name,
        DELIVERED.columns,
        DELIVERED.stamp,
        DELIVERED.archive,
        drops=frozenset({f"0:{second[1234]}"}),
    )
    bad = Ledger(lab.endpoints.postgres, "outbound", 1, lossy)
    kafka.put(
        "enriched.quarantine", "outbound/1", "enriched/0", [second[9], second[9]], now
    )  # one record twice, and another not at all
    bad.write(
        Batch(positions(COUNT), positions(2 * COUNT)),
        rows(set(second) - {second[9], second[10]}),
        epoch=1,
        quarantined=2,
    )
    bad.close()
    (missing,) = auditor.check()
    assert (
        "2 records that outbound read in batches 1 to 1 are not in delivered; the first may be enriched/2:"
        in missing.sentence
    )
    assert [count for _, count in losses(lab, "outbound")] == [2]
    assert auditor.check() == []
    auditor.close()


def test_a_replay_is_audited_by_its_batches_and_moves_no_position(
    lab: Lab,
) -> None:
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("TRUNCATE delivered, ledger, tier_epochs, audit, audit_read, losses")
        outbound, kafka, now = PIPELINE.tier("outbound"), Kafka(lab.endpoints), time.time()
        fresh = replace(outbound, inputs=(declarations.Stream("enriched", "id string"),))
        shift = Streams(lab.endpoints.kafka).bounds(["enriched"]).ends
        places = [{name: shift[name] + end for name, end in ends(offset).items()} for offset in (0, 100, 200)]
        auditor = started_audit(lab, fresh)
        kafka.put("enriched", "enrich/9", "hits/0", range(60_000, 60_200), now)
        first, second = range(60_000, 60_100), range(60_100, 60_200)
        with closing(Ledger(lab.endpoints.postgres, "outbound", 1, DELIVERED)) as owner, closing(auditor):
            owner.write(Batch(places[0], places[1]), rows(first), epoch=5)
            connection.execute("DELETE FROM delivered WHERE origin = '0:60007'")
            (missing,) = auditor.check()
            assert missing.records == 1
            saved: list[Counts] = []
            with closing(Ledger(lab.endpoints.postgres, "outbound", 1, DELIVERED)) as replay:
                done = replay.replay(
                    100, rows(first), number=7, quarantined=0, save=lambda _, counts: saved.append(counts)
                )
            assert saved == [done]
            assert (done.rows_in, done.rows_out, done.replays) == (100, 1, 99)
            # the fence does not refuse the owner, and no record is read again
            owner.write(Batch(places[1], places[2]), rows(second), epoch=5)
            assert auditor.check() == []
            written = connection.execute(
                "SELECT batch, replay, begins = ends FROM ledger ORDER BY batch"
            ).fetchall()
            assert written == [(0, None, False), (1, 7, True), (2, None, False)]
            assert connection.execute("SELECT batch FROM delivered WHERE origin = '0:60007'").fetchall() == [
                (1,)
            ], "the archive finds the replayed row"
            lossy = Lossy(
                DELIVERED.name,
                DELIVERED.columns,
                DELIVERED.stamp,
                DELIVERED.archive,
                drops=frozenset({"0:60300"}),
            )
            with closing(Ledger(lab.endpoints.postgres, "outbound", 1, lossy)) as replay:
                replay.replay(2, rows([60_300, 60_301]), number=8, quarantined=0, save=lambda *_: None)
            (missing,) = auditor.check()
            assert "batch 3 of outbound wrote 2 rows, and 1 are in delivered" in missing.sentence


def verdict_of(lab: Lab, tier: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SLUICE_ENDPOINTS", str(lab.home / "endpoints.json"))
    figures = read_figures()
    return next(verdict(line, figures.lost(tier)) for line in figures.audit if line.tier == tier)


def test_totals_that_grow_by_other_than_their_rows_are_reported(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = PIPELINE.tier("counts")
    with (
        psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection,
        closing(Auditor((counts,), lab.endpoints)) as auditor,
    ):
        connection.execute("TRUNCATE campaign_counts, ledger, tier_epochs, marks, audit, audit_read, losses")
        connection.execute(
            "INSERT INTO campaign_counts VALUES ('a', '2026-01-01', 70, 7, 0)"
        )  # before the audit's first look
        assert auditor.check() == []
        positions = iter(range(0, 10 * COUNT, COUNT))
        at = -COUNT

        def write(sink: Totals, owner: int) -> list[str]:
            nonlocal at
            at = next(positions)
            with closing(Ledger(lab.endpoints.postgres, "counts", owner, sink)) as ledger:
                ledger.write(
                    Batch({"enriched/0": at}, {"enriched/0": at + COUNT}),
                    hits(range(at, at + COUNT)),
                    epoch=owner,
                )
            return [missing.sentence for missing in auditor.check()]

        assert write(CAMPAIGN_COUNTS, 1) == []
        assert verdict_of(lab, "counts", monkeypatch) == "balanced by its sums"
        measured = measure()
        assert measured.sinks["counts"] == measured.audits["counts"].once == COUNT
        assert measured.audits["counts"].judged == {"enriched/0": COUNT}
        assert {place for place in measured.ends if place.startswith("enriched/")}
        assert auditor.check() == []
        assert measured.look is not None
        assert (measure().look or 0) > measured.look, "each look is told"
        (sentence,) = write(dropping("0:14321"), 2)
        assert sentence == (
            "batches 1 to 1 of counts wrote 10000 rows, and views + clicks + buys of campaign_counts grew "
            "by 9999: rows are missing, or a person changed the table, "
            "or the counted columns of a row do not sum to 1"
        )
        assert [count for _, count in losses(lab, "counts")] == [1]
        assert write(CAMPAIGN_COUNTS, 3) == [], "a loss is reported once"
        connection.execute(
            "UPDATE ledger SET batch = 2, rows_in = 30000, rows_out = 30000, ends = ends WHERE batch = 2"
        )
        connection.execute("DELETE FROM ledger WHERE batch < 2")  # as the ledger is folded
        connection.execute("DELETE FROM campaign_counts")  # old totals are deleted
        assert write(CAMPAIGN_COUNTS, 4) == []
        with closing(Auditor((counts,), lab.endpoints)) as later:
            assert later.check() == [], "the audit's book remembers the loss"
        connection.execute("UPDATE campaign_counts SET buys = buys + 3")
        (missing,) = auditor.check()
        assert missing.records == 3
        assert missing.sentence.startswith(
            "no batch of counts wrote rows, and views + clicks + buys of campaign_counts grew by 3: rows were"
        )


def test_a_sink_added_later_is_audited_from_its_first_batch_on(lab: Lab) -> None:
    number = {"n": "bigint"}
    kept, copied = Once("grown", number), Once("grown_copy", number)
    added = Totals("grown_sums", {"who": "text", "hits": "bigint"}, key=("who",), counted=("hits",))
    with psycopg.connect(lab.endpoints.postgres) as connection:
        for sink in (kept, copied, added):
            for statement in sink.statements():
                connection.execute(statement)
    tier = Tier(
        "grown",
        Kind.OUTBOUND,
        (declarations.Stream("raw"),),
        lambda raw: raw,
        sink=Sinks(kept, added, copied),
    )
    auditor = started_audit(lab, tier)

    def write(first: int, sink: Sink) -> list[str]:
        numbers = range(first, first + 10)
        columns = {"n": numbers, "who": ["all"] * 10, "hits": [1] * 10}
        with closing(Ledger(lab.endpoints.postgres, "grown", 1, sink)) as ledger:
            ledger.write(
                Batch({"raw/0": first}, {"raw/0": first + 10}),
                Rows(columns, [f"0:{n}" for n in numbers], ["0"] * 10),
                epoch=1,
            )
        return [missing.sentence for missing in auditor.check()]

    assert write(0, kept) == [], "the new code is published, and the tier runs the old code"
    assert write(10, Sinks(kept, added, copied)) == []
    lossy = Lossy("grown_copy", number, drops=frozenset({"0:25"}))
    (sentence,) = write(20, Sinks(kept, added, lossy))
    assert "1 records that grown read in batches 2 to 2 are not in grown_copy" in sentence
    lab.query("UPDATE grown_sums SET hits = hits + 4 RETURNING hits")
    assert ["hits of grown_sums grew by 4" in missing.sentence for missing in auditor.check()] == [True]
    auditor.close()


def test_totals_are_compared_as_of_one_commit_while_they_are_written(lab: Lab) -> None:
    tier = replace(PIPELINE.tier("counts"), name="busy", sink=replace(CAMPAIGN_COUNTS, name="busy_counts"))
    assert isinstance(tier.sink, Totals)
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in tier.sink.statements() * 2:  # as a second publish does
            connection.execute(statement)
    stopped, at = Event(), 0

    def write() -> None:
        nonlocal at
        with closing(Ledger(lab.endpoints.postgres, "busy", 1, tier.sink)) as ledger:  # type: ignore[arg-type]
            while not stopped.is_set():
                ledger.write(
                    Batch({"enriched/0": at}, {"enriched/0": at + 7}), hits(range(at, at + 7)), epoch=1
                )
                at += 7

    writer = Thread(target=write)
    with closing(started_audit(lab, tier)) as auditor:
        writer.start()
        losses_found = [missing for _ in range(50) for missing in auditor.check()]
        stopped.set()
        writer.join()
    assert losses_found == []
    assert at > 7 * 50


def test_gaps_between_batches_and_records_without_destination_are_reported(lab: Lab) -> None:
    Kafka(lab.endpoints).fill("enriched", 20)
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute("TRUNCATE campaign_counts, ledger, tier_epochs, audit, audit_read, losses")
        insert = (
            "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, "
            "quarantined, replays) VALUES ('counts', 1, %s, %s, %s, %s, %s, %s, 0, 0)"
        )
        counts = PIPELINE.tier("counts")
        auditor = started_audit(lab, counts)
        connection.execute(insert, (0, '{"enriched/0": 0}', '{"enriched/0": 10}', 10, 10, 0))
        connection.execute(insert, (1, '{"enriched/0": 15}', '{"enriched/0": 20}', 5, 4, 1))
        connection.execute("INSERT INTO campaign_counts VALUES ('a', '2026-01-01', 14, 0, 0)")
    sentences = [missing.sentence for missing in auditor.check()]
    assert (
        "batch 1 of counts begins with offset 15 of enriched/0, the batch before it ended at 10: "
        "5 records were skipped" in sentences[0]
    )
    assert "read 5 records, and 1 of them went nowhere" in sentences[1]
    assert lines(lab, "counts") == {"enriched/0": (15, 0)}
    assert losses(lab, "counts") == [("enriched/0:10", 5), ("enriched/0:15", 1)]
    auditor.close()
    with closing(Auditor((counts,), lab.endpoints)) as later:
        assert later.check() == [], "the audit's book remembers the losses"


def test_a_ledger_that_was_started_over_is_audited(lab: Lab) -> None:
    tier = replace(PIPELINE.tier("counts"), name="renewed")
    insert = (
        "INSERT INTO ledger (tier, incarnation, batch, begins, ends, rows_in, rows_out, filtered, "
        "quarantined, replays) VALUES ('renewed', 1, %s, %s, %s, %s, %s, 0, 0, 0)"
    )
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for number in range(3):
            begins, ends = (
                json.dumps({"enriched/0": 100 * number}),
                json.dumps({"enriched/0": 100 * number + 100}),
            )
            connection.execute(insert, (number, begins, ends, 100, 100))
        with closing(started_audit(lab, tier)) as auditor:
            connection.execute("DELETE FROM ledger WHERE tier = 'renewed'")
            connection.execute(insert, (0, '{"enriched/0": 0}', '{"enriched/0": 7}', 7, 7))
            assert auditor.check() == []
            assert auditor._audits["renewed"].done() == {"enriched/0": 7}, "the earlier ledger does not count"


def test_expired_records_never_read_are_neither_balanced_nor_lost(lab: Lab) -> None:
    """An expired record must not hide the other losses of the same look."""
    admin, kafka, now = (
        AdminClient({"bootstrap.servers": lab.endpoints.kafka}),
        Kafka(lab.endpoints),
        time.time(),
    )
    for created in admin.create_topics(
        [NewTopic("expiring", num_partitions=1, replication_factor=-1)]
    ).values():
        created.result()
    sink = Once("expired", {"id": "text"})
    tier = replace(
        PIPELINE.tier("outbound"),
        name="late",
        inputs=(declarations.Stream("expiring", "id string"),),
        sink=sink,
    )
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        for statement in sink.statements():
            connection.execute(statement)
    with (
        closing(started_audit(lab, tier)) as auditor,
        closing(Ledger(lab.endpoints.postgres, "late", 1, sink)) as ledger,
    ):
        kafka.put("expiring", "enrich/9", "hits/0", range(100), now, partitions=1)
        written = rows(offset for offset in range(100) if offset not in {5, 70})
        ledger.write(
            Batch({"expiring/0": 0}, {"expiring/0": 100}),
            replace(written, columns={"id": written.origins}),
            epoch=1,
        )
        with psycopg.connect(
            lab.endpoints.postgres, autocommit=True
        ) as connection:  # the faulty writer counts the rows that it has dropped
            connection.execute("UPDATE ledger SET rows_out = 100, filtered = 0 WHERE tier = 'late'")
        for deleted in admin.delete_records([TopicPartition("expiring", 0, 20)]).values():
            deleted.result()
        (missing,) = auditor.check()
    assert (missing.records, missing.place) == (1, "expiring/0:70")
    assert lab.query("SELECT unseen FROM audit WHERE tier = 'late'") == [(20,)]
