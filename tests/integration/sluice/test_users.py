"""Kafka with users (SASL_SSL, SCRAM-SHA-512) and access lists: each user can do only its
own part.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from sluice.api import declarations
from sluice.ingest.source import Record, Source, TakenOverError
from sluice.kafka import grants, topics
from sluice.kafka.reader import NoStreamError, Streams, topic_and_number
from sluice_ops.local.services import kafka_users
from sluice_ops.model.incarnation import State
from sluice_ops.model.kafka_access import ONE_COPY, User
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.files import write_private
from tests.authority import Authority
from tests.lab import ROOT, Lab, opened, until
from tests.tls_broker import tls_broker

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SECRET = "s3cret-of"
LOGIN = "org.apache.kafka.common.security"
SETTINGS = f"""sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={LOGIN}.plain.PlainLoginModule required \
username="admin" password="a" user_admin="a";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
"""
"""The file names the broker's admin, as in many clusters; no client is anonymous."""
HITS = declarations.load("hits")
AUDITED = "select distinct tier from audit"
HOSTS_OF = {"entry": "h1", "enrich": "h2", "outbound": "h3"}
DELIVERED = 400
"""The least number of delivered hits of 500 fed; some are filtered."""
RAW_RECORDS = 3
"""The records in `raw`."""
SPARK = """
import sys
from pathlib import Path
from sluice_ops.site.brokers import brokers
from sluice.driver.spark.jvm import launch
from sluice.driver.spark.session import open_session

jvm = launch(512, Path(sys.argv[1]))
config = {"spark.app.name": "test", "spark.driver.host": "127.0.0.1"}
config |= {"spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
session = open_session("local[1]", config, jvm)
options = brokers(sys.argv[2]).spark
source = session.readStream.format("kafka").options(**options, subscribe="raw", startingOffsets="earliest")
stream = source.load().select("value")
for topic in ("hits", "raw"):
    writer = stream.writeStream.format("kafka")
    writer = writer.options(**options, topic=topic, checkpointLocation=f"{sys.argv[1]}/{topic}")
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        print(topic, "written", query.lastProgress["numInputRows"])
    except Exception as error:
        print(topic, "refused", error)
again = session.read.format("kafka").options(**brokers(sys.argv[3]).spark, assign='{"raw": [0, 1]}').load()
print("taken again", again.count())
session.stop()
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Start a broker with all users, of which only the publisher has rights; return its address."""
    authority, users = Authority(tmp_path, "ca"), tmp_path / "users"
    users.mkdir()
    with tls_broker(tmp_path, authority, "SASL_SSL", SETTINGS) as servers:
        admin = {
            **brokers(f"ssl://{servers}?ca={authority.file}").client,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
        }
        client = AdminClient({**admin, "sasl.username": "admin", "sasl.password": "a", "log_level": 0})
        until("the broker serves", lambda: serves(client), seconds=60)
        for user in User:
            write_private(users / f"{user}.properties", f"password={password(user)}\n")
        kafka_users.create(client, {user: password(user) for user in User})
        yield f"ssl://{servers}?ca={authority.file}&users={users}"


def password(user: User) -> str:
    return f"{SECRET}-{user}"


def serves(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=2).brokers)
    except Exception:  # noqa: BLE001 - the broker does not serve yet
        return False


def put(settings: dict[str, object], stream: str, *, once: bool = False) -> str:
    """Write a record, with `once` as Sluice does; return the error's name, or an empty string."""
    errors = ["no answer"]
    producer = Producer(
        {**settings, "acks": "all", "enable.idempotence": once, "message.timeout.ms": 5000, "log_level": 0}
    )

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        errors[0] = "" if error is None else error.name()

    producer.produce(stream, b"x", on_delivery=on_delivery)
    producer.flush(20)
    return errors[0]


def test_each_user_does_its_own_part_and_no_password_shows(address: str, tmp_path: Path) -> None:
    addresses = {user: with_user(address, user) for user in User}
    assert "raw" in topics.create(addresses[User.PUBLISHER], HITS, 2, ONE_COPY)
    assert put(brokers(addresses[User.OUTSIDE]).client, "raw") == "TOPIC_AUTHORIZATION_FAILED", (
        "no right is granted yet"
    )
    refused = grants.grant(addresses[User.OUTSIDE], HITS)
    assert refused is not None
    assert "a Kafka administrator must grant them" in refused
    assert (
        grants.grant(addresses[User.PUBLISHER], HITS)
        == grants.grant(addresses[User.PUBLISHER], HITS)
        == grants.DONE
    )

    until(
        "the access lists apply",
        lambda: put(brokers(addresses[User.OUTSIDE]).client, "raw") == "",
        seconds=30,
    )
    tried_streams = ("raw", "hits", "raw.quarantine", "hits.warm-up")
    results = {
        (user, stream): put(brokers(addresses[user]).client, stream)
        for user in User
        for stream in tried_streams
    }
    allowed = {(User.OUTSIDE, "raw"), (User.OPERATOR, "hits"), (User.OPERATOR, "raw.quarantine")}
    allowed |= {(User.DRIVER, stream) for stream in ("hits", "raw.quarantine", "hits.warm-up")}
    assert {key for key, result in results.items() if result == ""} == allowed
    assert {result for key, result in results.items() if key not in allowed} == {"TOPIC_AUTHORIZATION_FAILED"}
    assert {put(brokers(addresses[user]).client, stream, once=True) for user, stream in allowed} == {""}

    for user in (User.DRIVER, User.AUDIT, User.OPERATOR):
        streams = Streams(addresses[user])
        bounds = streams.bounds(["raw"])
        assert sum(bounds.ends.values()) == RAW_RECORDS
        assert len(streams.times_at(bounds.oldest)) == sum(end > 0 for end in bounds.ends.values())
        assert (
            list(streams.read({topic_and_number(place): 0 for place in bounds.ends}, bounds.ends)) == []
        )  # all records are read, and none has a lineage
        streams.close()

    settings = brokers(addresses[User.OUTSIDE]).client
    wrong_settings: list[dict[str, object]] = [
        {**settings, "sasl.password": "another"},
        {**settings, "security.protocol": "SSL"},
        {"bootstrap.servers": settings["bootstrap.servers"]},
    ]
    assert {put(wrong, "raw") for wrong in wrong_settings} == {"_MSG_TIMED_OUT"}

    words = [sys.executable, "-c", SPARK, str(tmp_path), addresses[User.DRIVER], addresses[User.OPERATOR]]
    done = subprocess.run(words, env=os.environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"hits written {RAW_RECORDS}" in done.stdout, done.stderr[-3000:]
    assert "raw refused" in done.stdout
    assert f"taken again {RAW_RECORDS}" in done.stdout
    assert "TopicAuthorizationException" in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr + (tmp_path / "kafka.log").read_text()

    source = Source(addresses[User.OUTSIDE], "raw", "app", stopped=lambda: False)
    assert source.take_over() == {}
    source.write([Record(None, b"x", "a:0")], {"file/a": b"1"})
    second = Source(addresses[User.OUTSIDE], "raw", "app", stopped=lambda: False)
    assert second.take_over()["file/a"] == b"1"
    with pytest.raises(TakenOverError):
        source.write([Record(None, b"y", "a:1")], {})
    for user, stream in ((User.OUTSIDE, "hits"), (User.OPERATOR, "raw")):
        with pytest.raises(NoStreamError):
            Source(addresses[user], stream, "app", stopped=lambda: False).take_over()


@pytest.mark.timeout(1200)
def test_a_pipeline_runs_with_each_process_as_its_own_kafka_user(address: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with opened(home, kafka=address) as lab, auditing(lab):
        for tier, host in HOSTS_OF.items():
            lab.start_owner(tier, 1, host)
        fed = run_module(lab, "hits.feed", "--rate", "100", "--count", "500", "--first", "1")
        assert fed.returncode == 0, fed.stderr
        until("the fed hits are delivered", lambda: lab.delivered()[0] > DELIVERED)

        lab.cut("entry", 1, 2, "h2")
        lab.wait_caught_up("entry", 2)
        lab.set_owner("entry", 2)
        lab.wait_for("entry", 1, State.STOPPED)
        assert put(brokers(lab.endpoints.kafka_as(User.OUTSIDE)).client, "raw") == "", (
            "a bad record is written"
        )
        quarantined_again = until(
            "the bad record is quarantined, and reprocessed",
            lambda: replayed(lab, "entry", "--quarantine")["quarantined"],
        )
        assert quarantined_again == 1
        until("the audit has read all tiers", lambda: {row[0] for row in lab.query(AUDITED)} >= set(HOSTS_OF))
        assert replayed(lab, "entry", "--rate", "1000")["put"] > 0

        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        assert sum("sluice.driver" in line for line in lines) >= len(HOSTS_OF)
        assert [line for line in lines if SECRET in line] == []
    logs = [
        path for path in home.rglob("*") if path.is_file() and ("log" in path.name or "logs" in path.parts)
    ]
    assert len(logs) > 10
    assert [path for path in logs if SECRET in path.read_text(errors="replace")] == []


@contextmanager
def auditing(lab: Lab) -> Iterator[None]:
    with (
        (lab.home / "audit.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "sluice.audit"], env=lab.env, cwd=ROOT, stdout=log, stderr=log
        ) as audit,
    ):
        try:
            yield
        finally:
            audit.terminate()


def run_module(lab: Lab, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *words], env=lab.env, cwd=ROOT, capture_output=True, text=True, check=False
    )


def replayed(lab: Lab, *words: str) -> dict[str, Any]:
    """Replay until the end, as `sluice replay` does; return the result."""
    done = run_module(lab, "sluice.replay", *words, "--json")
    assert not done.returncode, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result
