"""Entry, enrich, counts and outbound for real: moved and killed under load, every hit arrives once and the counts agree."""

import json
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sluice_ops.model.incarnation import State
from sluice_ops.process.metrics_server import exporters
from tests.lab import ROOT, Lab, until
from tests.scrape import scrape

pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]
RATE = 100
WRITER = "select incarnation from ledger where tier = 'outbound' order by batch desc limit 1"
HOLES = """
    select tier, batch from (select *, lag(ends) over (partition by tier order by batch) as before from ledger) as each
    where before is not null and before <> begins
"""
"""Batches that do not begin where the one before ended."""
BAD = {
    b"{broken": "broken JSON",
    b'"text"': "not a JSON object",
    b'{"id":5,"user":"u","ad":"a","kind":"view","at":1}': "wrong type: id must be text",
    b'{"id":"x","user":"u","ad":"a","kind":"view","at":"soon"}': "wrong type: at must be",
    b'{"id":"x","user":"u","ad":"a","kind":"stare","at":1}': "unknown kind: stare",
    b'{"id":"x","user":"u","ad":"a","kind":"view","at":99999999999999}': "at is more than 1 hour in the future",
    b'{"id":"' + b"x" * 70_000 + b'","user":"u","ad":"a","kind":"view","at":1}': "oversized",
}


@pytest.fixture(scope="module")
def flowing(lab: Lab) -> Lab:
    """All four tiers, started cold, with what is fed from the first moment on."""
    for host, tier in (("h1", "entry"), ("h2", "enrich"), ("h3", "counts"), ("h3", "outbound")):
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    return lab


def test_every_hit_arrives_once_though_tiers_move_and_die(flowing: Lab) -> None:
    lab = flowing
    lab.start_feed(RATE)

    # an overlap: the next incarnation runs beside the owner until it has passed it
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

    # an executor dies: the driver goes on with the one that its slot starts again
    lab.kill_executor("entry", 2)
    until(
        "entry runs again in place",
        lambda: "restarts in place" in lab.log("entry", 2) and "by=entry/2.1" in lab.log("entry", 2),
    )
    assert lab.driver("entry", 2).poll() is None

    # a driver dies, and a cold one follows it
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
    assert lab.query(HOLES) == []
    # the last batch's transaction may still be followed by replays only
    assert lab.query("select sum(replays) > 0 from ledger where tier = 'outbound'") == [(True,)]


def _take_turns(lab: Lab) -> None:
    """Hand a tier with a sink over: called off at first, and then through."""
    # the next incarnation writes from its turn on; the owner, refused before it has heard of it, holds
    lab.cut("outbound", 1, 2, "h1")
    lab.wait_caught_up("outbound", 2)
    held = lab.wait_for("outbound", 1, State.PAUSED).stopped_at
    assert "another incarnation has taken over" in lab.log("outbound", 1)

    # it is called off: the owner has the better right again, though the other one has written
    lab.set_owner("outbound", 1)
    lab.wait_for("outbound", 2, State.PAUSED)
    lab.wait_for("outbound", 1, State.RUNNING)
    until("the owner writes again", lambda: lab.query(WRITER) == [(1,)])
    lab.stop("outbound", 2)

    # and through: hardly a moment without a batch
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


def test_figures_tell_of_all_that_came_through(flowing: Lab) -> None:
    found = {exporter.tier: exporter for exporter in exporters(flowing.channel)}
    assert found["outbound"].incarnation == 3
    report = flowing.report("outbound", 3)
    assert report is not None
    assert scrape(found["outbound"])["sluice_tier_gap_seconds"] == report.gap_seconds
    until("nothing waits", lambda: scrape(found["counts"])["sluice_tier_lag_records"] == 0)
    counts, (fed, _) = scrape(found["counts"]), flowing.delivered()
    assert counts["sluice_tier_records_out_total"] == fed
    assert counts["sluice_tier_latency_seconds_count"] == fed + counts["sluice_tier_records_replayed_total"]
    assert (
        counts["sluice_tier_records_replayed_total"]
        == flowing.query("select sum(replays) from ledger where tier = 'counts'")[0][0]
    )
    assert (
        counts["sluice_tier_marks"] == flowing.query("select count(*) from marks where tier = 'counts'")[0][0]
    )
    assert scrape(found["counts"], phase="write")["sluice_tier_batch_phase_seconds_count"] >= 2
    assert scrape(found["entry"])["sluice_tier_query_restarts_total"] >= 1, "its executor was killed"


def test_bad_records_are_set_aside_with_their_reason(flowing: Lab) -> None:
    producer = Producer({"bootstrap.servers": flowing.endpoints.kafka})
    for value in BAD:
        producer.produce("raw", value=value)
    producer.flush(10)
    consumer = Consumer(
        {"bootstrap.servers": flowing.endpoints.kafka, "group.id": "look", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("raw.quarantine", number, 0) for number in range(4)])
    found: dict[bytes, str] = {}

    def all_there() -> bool:
        for message in consumer.consume(100, 0.5):
            headers = dict(message.headers())
            assert {"origin", "path", "from", "by", "t0"} <= set(headers)
            found[message.value()] = headers["reason"].decode()
        return set(BAD) <= set(found)

    until("all bad records are in quarantine", all_there)
    consumer.close()
    for value, reason in BAD.items():
        assert found[value].startswith(reason), (value[:80], found[value])


def test_what_was_bad_is_taken_up_and_nothing_twice(flowing: Lab) -> None:
    lab = flowing
    before, _ = lab.delivered()
    soon = time.time() + 30  # until then it is read
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka})
    early = {"id": "hit-early", "user": "u", "ad": "ad-1", "kind": "buy", "at": int((soon + 3600) * 1000)}
    producer.produce("raw", value=json.dumps(early))
    producer.flush(10)
    until(
        "it is in quarantine, with all others",
        lambda: _replay(lab, "entry", "--quarantine", "--dry-run")["left"] > len(BAD),
    )
    time.sleep(max(0.0, soon - time.time()))
    said = _replay(lab, "entry", "--quarantine")
    assert said["left"] == 0
    assert (said["put"], said["quarantined"]) == (1, len(BAD))
    until("it is delivered", lambda: lab.delivered() == (before + 1, before + 1))
    until(
        "and counted",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(before + 1,)],
    )
    until(
        "all others are bad again",
        lambda: _replay(lab, "entry", "--quarantine", "--dry-run")["left"] == len(BAD),
    )

    said = _replay(lab, "outbound", "--rate", "3000")
    assert said["put"] == 0
    assert said["dropped"] >= before
    assert lab.delivered() == (before + 1, before + 1)


def _replay(lab: Lab, *words: str) -> dict[str, int]:
    command = [sys.executable, "-m", "sluice.replay", *words, "--json"]
    done = subprocess.run(command, env=lab.env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_paused_tier_lets_nothing_through_and_goes_on(flowing: Lab) -> None:
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
        "counts has it",
        lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(before + 1,)],
    )
    assert lab.delivered()[0] == before
    lab.set_owner("outbound", 3)
    lab.wait_for("outbound", 3, State.RUNNING)
    until("it is delivered", lambda: lab.delivered() == (before + 1, before + 1))


def test_an_older_incarnation_is_fenced_off_by_the_sink(flowing: Lab) -> None:
    """Incarnation 9 believes that it owns the tier; the table knows better."""
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
    said = lab.wait_for("counts", 9, State.FENCED)
    assert (
        "incarnation 10 has written by the owner record of epoch 1000000; incarnation 9, which has read epoch"
        in str(said.error)
    )
    assert lab.driver("counts", 9).wait(timeout=60) == 3


def lab_connection(lab: Lab):
    import psycopg  # noqa: PLC0415

    return psycopg.connect(lab.endpoints.postgres, autocommit=True)
