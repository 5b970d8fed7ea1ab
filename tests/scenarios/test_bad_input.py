"""Wrong input of users and their programs: each gets a clear message, and no record is lost."""

import json
import time
import urllib.error
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sluice.api.lineage_header import texts
from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until
from tests.scenarios.oracle import Load

pytestmark = [pytest.mark.timeout(900)]  # the first test waits until the platform is up


def good(identity: str) -> dict[str, object]:
    return {"id": identity, "user": "u1", "ad": "ad-1", "kind": "view", "at": int(time.time() * 1000)}


BAD: dict[str, bytes] = {
    "broken JSON": b'{"id": "bad-1", ',
    "not JSON at all": b"\xff\xfe hello",
    "a number for a name": json.dumps({**good("bad-2"), "user": {"no": "name"}}).encode(),
    "a word for a time": json.dumps({**good("bad-3"), "at": "yesterday"}).encode(),
    "an unknown kind": json.dumps({**good("bad-4"), "kind": "stare"}).encode(),
    "no id": json.dumps({key: value for key, value in good("bad-5").items() if key != "id"}).encode(),
    "a time far ahead": json.dumps({**good("bad-6"), "at": int(time.time() * 1000) + 10**9}).encode(),
    "oversized": json.dumps({**good("bad-7"), "user": "u" * 400_000}).encode(),
    "nothing": b"",
}


def quarantined(live: Live, since: dict[int, int]) -> dict[str, str]:
    """Return the reasons of all records quarantined since the given offsets, by the record's
    origin.
    """
    consumer = Consumer({**live.kafka, "group.id": f"bad-{time.time_ns()}"})
    consumer.assign([TopicPartition("raw.quarantine", number, offset) for number, offset in since.items()])
    reasons: dict[str, str] = {}
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for message in consumer.consume(100, 0.5):
            headers = texts(message.headers())
            reasons[headers["origin"]] = headers["reason"]
    consumer.close()
    return reasons


def ends(live: Live, topic: str) -> dict[int, int]:
    consumer = Consumer({**live.kafka, "group.id": "bad-ends"})
    numbers = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    offsets = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)[1]
        for number in numbers
    }
    consumer.close()
    return offsets


def test_bad_records_are_quarantined_with_the_reason_and_good_ones_flow(live: Live) -> None:
    since = ends(live, "raw.quarantine")
    with Load(live, 100) as load:
        producer = Producer(live.kafka)
        for value in BAD.values():
            producer.produce("raw", value=value)
        producer.flush(20)
        reasons = until(
            "every bad record is quarantined",
            WAIT_SECONDS,
            lambda: len(reasons := quarantined(live, since)) == len(BAD) and reasons,
        )
        assert all(len(reason) > 5 for reason in reasons.values()), reasons
    load.check()


@pytest.mark.long
def test_a_replay_from_airflow_reads_the_quarantine_again(live: Live) -> None:
    since, producer = ends(live, "raw.quarantine"), Producer(live.kafka)
    for value in BAD.values():
        producer.produce("raw", value=value)
    producer.flush(20)
    until("they are in quarantine", WAIT_SECONDS, lambda: len(quarantined(live, since)) == len(BAD))
    dry = live.run("replay_tier", tier="entry", records="quarantine", dry_run=True)
    run = live.run("replay_tier", tier="entry", records="quarantine", rate=500)
    by_name = "SELECT quarantined, ended_at IS NOT NULL FROM replays WHERE name = %s"
    ((left, ended),) = live.rows(by_name, f"airflow:replay_tier/{run}")
    assert ended
    assert left >= len(BAD), "the records are as bad as before"
    assert live.rows(by_name, f"airflow:replay_tier/{dry}") == []


def test_an_unknown_host_in_the_form_is_refused_and_nothing_moves(live: Live) -> None:
    before = {name: tier["incarnation"] for name, tier in live.tiers().items()}
    run = live.trigger("drain_host", host="nowhere")
    assert live.wait_for_end("drain_host", run) == "failed"
    assert live.steps("drain_host", run)["preflight"] == "failed", "no step was started"
    log = live.log_of_failed("drain_host", run)
    assert 'there is no host "nowhere"; known hosts: h1, h2, h3' in log.replace('\\"', '"'), log
    assert {name: tier["incarnation"] for name, tier in live.tiers().items()} == before


def test_the_form_refuses_an_invalid_host_name(live: Live) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        live.trigger("drain_host", host="h1 h2")
    assert refused.value.code == 400
    assert "h1 h2" in refused.value.read().decode()


def test_a_wrong_key_in_the_site_file_is_named(live: Live, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text((ROOT / "site.yaml").read_text().replace("cpu: 8", "cpus: 8", 1))
    live.env["SLUICE_SITE"], before = str(site), live.env.get("SLUICE_SITE")
    try:
        done = live.sluice("doctor", check=False)
    finally:
        live.env.pop("SLUICE_SITE")
        if before is not None:
            live.env["SLUICE_SITE"] = before
    assert done.returncode != 0
    assert "hosts.0.capacity.cpus" in done.stdout + done.stderr


def test_a_taken_port_is_named_with_the_remedy(live: Live, tmp_path: Path) -> None:
    home, base = live.env["SLUICE_HOME"], live.env["SLUICE_PORT_BASE"]
    live.env["SLUICE_HOME"] = str(tmp_path / "other")
    try:
        done = live.sluice("up", check=False, seconds=120)
    finally:
        live.env["SLUICE_HOME"], live.env["SLUICE_PORT_BASE"] = home, base
    assert done.returncode != 0
    assert "SLUICE_PORT_BASE" in done.stdout + done.stderr
    assert live.all_running(), "the platform that uses the ports still runs"
