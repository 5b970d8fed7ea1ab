"""The shipped tiers for real: moved and killed under load, every hit is delivered once and the
counts agree.
"""

import json
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sluice.api.lineage_header import texts
from sluice_ops.model.incarnation import State
from sluice_ops.process.metrics_server import exporters
from tests.lab import ROOT, Lab, until
from tests.scrape import scrape

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]
RATE = 100
WRITER = "select incarnation from ledger where tier = 'outbound' order by batch desc limit 1"
LEDGER_GAPS = """
    select tier, batch
    from (select *, lag(ends) over (partition by tier order by batch) as before from ledger) as batches
    where before is not null and before <> begins
"""
"""Batches that do not begin where the batch before ended."""
BAD = {
    b"{broken": "broken JSON",
    b'"text"': "not a JSON object",
    b'{"id":5,"user":"u","ad":"a","kind":"view","at":1}': "wrong type: id must be text",
    b'{"id":"x","user":"u","ad":"a","kind":"view","at":"soon"}': "wrong type: at must be",
    b'{"id":"x","user":"u","ad":"a","kind":"stare","at":1}': "unknown kind: stare",
    b'{"id":"x","user":"u","ad":"a","kind":"view","at":99999999999999}': "at is more than 1 hour in the "
    "future",
    b'{"id":"' + b"x" * 70_000 + b'","user":"u","ad":"a","kind":"view","at":1}': "oversized",
}


@pytest.fixture(scope="module")
def flowing(lab: Lab) -> Lab:
    """All four tiers, started cold, and running."""
    for host, tier in (("h1", "entry"), ("h2", "enrich"), ("h3", "counts"), ("h3", "outbound")):
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    return lab


def test_every_hit_arrives_once_though_tiers_move_and_die(flowing: Lab) -> None:
    lab = flowing
    lab.start_feed(RATE)

    # An overlap: the next incarnation runs beside the owner until it has passed the owner.
    lab.cut("entry", 1, 2, "h2")
    lab.wait_caught_up("entry", 2)
    lab.set_owner("entry", 2)
    before = lab.wait_for("entry", 1, State.STOPPED).stopped_at
    after = lab.report("entry", 2)
    assert before is not None
    assert after is not None
    assert after.started_from is not None
    assert all(after.started_from.positions[name] <= end for name, end in before.positions.items())
    lab.stop("entry", 1)

    _take_turns(lab)

    # An executor dies: the driver continues with the executor that its slot restarts.
    lab.kill_executor("entry", 2)
    until(
        "entry runs again in place",
        lambda: "restarts in place" in lab.log("entry", 2) and "by=entry/2.1" in lab.log("entry", 2),
    )
    assert lab.driver("entry", 2).poll() is None

    # A driver dies, and a cold one follows.
    lab.driver("enrich", 1).send_signal(signal.SIGKILL)
    lab.stop("enrich", 1)
    lab.start_owner("enrich", 2, "h3")

    lab.wait_for("enrich", 2, State.RUNNING)
    fed = lab.stop_feed()
    until("every hit is delivered", lambda: lab.delivered()[0] >= fed)
    assert lab.delivered() == (fed, fed)
    assert {row[0] for row in lab.query("select id from delivered")} == {
        f"hit-{number}" for number in range(1, fed + 1)
    }
    until(
        "the counts agree",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(fed,)],
    )
    assert lab.query("select sum(rows_in - rows_out - filtered - quarantined - replays) from ledger") == [
        (0,)
    ]
    assert lab.query(LEDGER_GAPS) == []
    # the last batch may be followed only by replays
    assert lab.query("select sum(replays) > 0 from ledger where tier = 'outbound'") == [(True,)]


def _take_turns(lab: Lab) -> None:
    """Hand over a tier with a sink: first called off, then completed."""
    # The next incarnation writes from its turn on. The ledger refuses the owner before it knows,
    # and the owner pauses.
    lab.cut("outbound", 1, 2, "h1")
    lab.wait_caught_up("outbound", 2)
    held = lab.wait_for("outbound", 1, State.PAUSED).stopped_at
    assert "another incarnation has taken over" in lab.log("outbound", 1)

    # The handover is called off: the owner has the better right again, though the other one has
    # written.
    lab.set_owner("outbound", 1)
    lab.wait_for("outbound", 2, State.PAUSED)
    lab.wait_for("outbound", 1, State.RUNNING)
    until("the owner writes again", lambda: lab.query(WRITER) == [(1,)])
    lab.stop("outbound", 2)

    # The handover is completed: hardly a moment without a batch.
    lab.cut("outbound", 1, 3, "h1")
    lab.wait_caught_up("outbound", 3)
    lab.set_owner("outbound", 3)
    stopped = lab.wait_for("outbound", 1, State.STOPPED).stopped_at
    resumed = lab.report("outbound", 3)
    assert held is not None
    assert stopped is not None
    assert resumed is not None
    assert resumed.started_from is not None
    assert all(resumed.started_from.positions[name] <= end for name, end in stopped.positions.items())
    assert resumed.gap_seconds is not None
    assert resumed.gap_seconds < 2.0
    lab.stop("outbound", 1)


def test_metrics_report_all_records(flowing: Lab) -> None:
    exporter_of = {exporter.tier: exporter for exporter in exporters(flowing.channel)}
    assert exporter_of["outbound"].incarnation == 3
    report = flowing.report("outbound", 3)
    assert report is not None
    assert scrape(exporter_of["outbound"])["sluice_tier_gap_seconds"] == report.gap_seconds
    until("counts has no lag", lambda: scrape(exporter_of["counts"])["sluice_tier_lag_records"] == 0)
    counts, (fed, _) = scrape(exporter_of["counts"]), flowing.delivered()
    assert counts["sluice_tier_records_out_total"] == fed
    assert counts["sluice_tier_latency_seconds_count"] == fed + counts["sluice_tier_records_replayed_total"]
    assert (
        counts["sluice_tier_records_replayed_total"]
        == flowing.query("select sum(replays) from ledger where tier = 'counts'")[0][0]
    )
    assert (
        counts["sluice_tier_marks"] == flowing.query("select count(*) from marks where tier = 'counts'")[0][0]
    )
    assert scrape(exporter_of["counts"], phase="write")["sluice_tier_batch_phase_seconds_count"] >= 2
    assert scrape(exporter_of["entry"])["sluice_tier_query_restarts_total"] >= 1, (
        "the executor of entry was killed"
    )


def test_bad_records_are_quarantined_with_their_reason(flowing: Lab) -> None:
    producer = Producer({"bootstrap.servers": flowing.endpoints.kafka})
    for value in BAD:
        producer.produce("raw", value=value)
    producer.flush(10)
    consumer = Consumer(
        {"bootstrap.servers": flowing.endpoints.kafka, "group.id": "look", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("raw.quarantine", number, 0) for number in range(4)])
    reasons: dict[bytes, str] = {}

    def all_there() -> bool:
        for message in consumer.consume(100, 0.5):
            headers = texts(message.headers())
            assert {"origin", "path", "from", "by", "t0"} <= set(headers)
            reasons[message.value()] = headers["reason"]
        return set(BAD) <= set(reasons)

    until("all bad records are in quarantine", all_there)
    consumer.close()
    for value, reason in BAD.items():
        assert reasons[value].startswith(reason), (value[:80], reasons[value])


def test_bad_records_are_reprocessed_and_none_twice(flowing: Lab) -> None:
    lab = flowing
    before, _ = lab.delivered()
    soon = time.time() + 30  # the record is too far in the future until then
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    early_hit = {"id": "hit-early", "user": "u", "ad": "ad-1", "kind": "buy", "at": int((soon + 3600) * 1000)}
    producer.produce("raw", value=json.dumps(early_hit))
    producer.flush(10)
    until(
        "the early hit is in quarantine, with all bad records",
        lambda: _replay(lab, "entry", "--quarantine", "--dry-run")["left"] > len(BAD),
    )
    time.sleep(max(0.0, soon - time.time()))
    replay = _replay(lab, "entry", "--quarantine")
    assert replay["left"] == 0
    assert (replay["put"], replay["quarantined"]) == (1, len(BAD))
    until("the early hit is delivered", lambda: lab.delivered() == (before + 1, before + 1))
    until(
        "the early hit is counted",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(before + 1,)],
    )
    until(
        "all other records are in quarantine again",
        lambda: _replay(lab, "entry", "--quarantine", "--dry-run")["left"] == len(BAD),
    )

    replay = _replay(lab, "outbound", "--rate", "3000")
    assert replay["put"] == 0
    assert replay["dropped"] >= before
    assert lab.delivered() == (before + 1, before + 1)


def _replay(lab: Lab, *words: str) -> dict[str, int]:
    command = [sys.executable, "-m", "sluice.replay", *words, "--json"]
    done = subprocess.run(command, env=lab.env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_paused_tier_delivers_nothing_and_then_continues(flowing: Lab) -> None:
    lab = flowing
    lab.set_owner("outbound", 3, paused=True)
    lab.wait_for("outbound", 3, State.PAUSED)
    before, _ = lab.delivered()
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    producer.produce(
        "raw", value=json.dumps({"id": "hit-paused", "user": "u", "ad": "ad-1", "kind": "buy", "at": 1})
    )
    producer.flush(10)
    until(
        "counts has counted the hit",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(before + 1,)],
    )
    assert lab.delivered()[0] == before
    lab.set_owner("outbound", 3)
    lab.wait_for("outbound", 3, State.RUNNING)
    until("the hit is delivered", lambda: lab.delivered() == (before + 1, before + 1))


def test_an_older_incarnation_is_fenced_off_by_the_sink(flowing: Lab) -> None:
    """Incarnation 9 owns the tier by its owner record, but the table knows a later epoch."""
    lab = flowing
    lab.set_owner("counts", 9)
    lab.wait_for("counts", 1, State.STOPPED)
    with lab_connection(lab) as connection:
        connection.execute("update tier_epochs set epoch = 1000000, incarnation = 10 where tier = 'counts'")
    lab.start_owner("counts", 9, "h2")
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    producer.produce(
        "raw", value=json.dumps({"id": "hit-fenced", "user": "u", "ad": "ad-1", "kind": "buy", "at": 1})
    )
    producer.flush(10)
    report = lab.wait_for("counts", 9, State.FENCED)
    assert (
        "incarnation 10 has written by the owner record of epoch 1000000; incarnation 9, which has read epoch"
        in str(report.error)
    )
    assert lab.driver("counts", 9).wait(timeout=60) == 3


def lab_connection(lab: Lab):
    import psycopg  # noqa: PLC0415

    return psycopg.connect(lab.endpoints.postgres, autocommit=True)
