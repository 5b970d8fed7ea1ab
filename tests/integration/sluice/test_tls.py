"""Kafka over TLS with certificates on both sides, for Sluice's clients and Spark's connector; other
clients are refused.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sluice.api import declarations
from sluice.kafka import topics
from sluice.kafka.reader import Streams
from sluice.kafka.topics import TopicError
from sluice_ops.model.kafka_access import ONE_COPY
from sluice_ops.site.brokers import brokers
from tests.authority import Authority
from tests.lab import ROOT, until
from tests.tls_broker import produce_error, tls_broker

pytestmark = pytest.mark.timeout(300)
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
read = session.read.format("kafka").options(**options, subscribe="raw", startingOffsets="earliest").load()
read.select("value").write.format("kafka").options(**options, topic="hits").save()
print("read", read.count())
session.stop()
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Start a broker that accepts only TLS clients with a certificate; return its address."""
    authority = Authority(tmp_path, "ca")
    certificate, _ = authority.sign("client")
    with tls_broker(tmp_path, authority, "SSL", "ssl.client.auth=required\n") as servers:
        yield f"ssl://{servers}?ca={authority.file}&certificate={certificate}"


def test_streams_are_made_read_and_written_and_strangers_refused(address: str, tmp_path: Path) -> None:
    def has_streams() -> bool:
        try:
            topics.create(address, declarations.load("hits"), 2, ONE_COPY)
        except TopicError:
            return False
        return True

    until("the broker has the streams", has_streams)
    producer = Producer({**brokers(address).client, "acks": "all"})
    for number in range(10):
        producer.produce("raw", f"{number}".encode())
    assert producer.flush(30) == 0
    streams = Streams(address)
    assert sum(streams.bounds(["raw"]).ends.values()) == 10
    done = subprocess.run(
        [sys.executable, "-c", SPARK, str(tmp_path), address],
        env=os.environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "read 10" in done.stdout, done.stderr[-3000:]
    assert sum(streams.bounds(["hits"]).ends.values()) == 10
    streams.close()

    without_certificate = address.partition("&")[0]
    stranger = Authority(tmp_path, "stranger")
    for wrong in (
        without_certificate,
        address.replace("/ca.pem", f"/{stranger.file.name}"),
        brokers(address).servers,
    ):
        assert produce_error(brokers(wrong).client, b"forged")
    streams = Streams(address)
    assert sum(streams.bounds(["raw"]).ends.values()) == 10
    streams.close()
