"""A broker is frozen for as long as a record may wait, and then continues: the output of a run is
in order and has no gap.
"""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sluice.api.lineage_header import texts
from sluice.kafka.positions import GIVE_UP_MS
from sluice_ops.model.incarnation import State
from sluice_ops.site.java import JAVA
from tests.lab import Lab, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

RATE = 200
STREAM = "hits"
"""The stream on the second broker; the first broker, which is not frozen, has all others."""
FREEZE_SECONDS = (GIVE_UP_MS / 1000 + 0.4, GIVE_UP_MS / 1000 + 1.5)
"""How long the broker is frozen: the first records time out, and the last still wait when it
continues.
"""


@contextmanager
def second_broker(lab: Lab, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a second broker of the lab's Kafka."""
    first_properties = (lab.home / "conf" / "kafka.properties").read_text()
    cluster = re.search(r"cluster.id=(\S+)", (lab.home / "data" / "kafka" / "meta.properties").read_text())
    assert cluster is not None
    port = lab.env["SLUICE_PORT_BASE"]  # the lab's own ports are above this one
    settings = {"process.roles": "broker", "node.id": "2", "log.dirs": str(folder / "data")}
    settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    common_lines = [line for line in first_properties.splitlines() if line.split("=")[0] not in settings]
    config = folder / "kafka.properties"
    config.write_text("\n".join([*common_lines, *(f"{key}={value}" for key, value in settings.items())]))
    program = [str(JAVA), "-Xmx256m", "-cp", f"{lab.home}/jars/broker/*"]
    subprocess.run(
        [*program, "kafka.tools.StorageTool", "format", "-t", cluster[1], "-c", str(config)], check=True
    )
    with (folder / "log").open("w") as log:
        broker = subprocess.Popen([*program, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        yield broker
    finally:
        broker.send_signal(signal.SIGCONT)
        broker.terminate()
        broker.wait(60)


def recreate_on(lab: Lab, broker: int) -> None:
    """Recreate the stream on a broker."""
    admin = AdminClient({"bootstrap.servers": lab.endpoints.kafka})
    until("the broker is up", lambda: broker in admin.list_topics(timeout=5).brokers)
    partitions = len(admin.list_topics(timeout=5).topics[STREAM].partitions)
    admin.delete_topics([STREAM])[STREAM].result()
    until("the stream is deleted", lambda: STREAM not in admin.list_topics(timeout=5).topics)
    settings = {"message.timestamp.type": "CreateTime"}
    admin.create_topics(
        [NewTopic(STREAM, partitions, replica_assignment=[[broker]] * partitions, config=settings)]
    )[STREAM].result()


def origins(lab: Lab) -> list[list[int]]:
    """Return the input offsets of the stream's records, by output and input partition, in the order
    of their first copies.
    """
    reader = Consumer(
        {"bootstrap.servers": lab.endpoints.kafka, "group.id": "test", "enable.partition.eof": False}
    )
    offsets_by_partitions: dict[tuple[int, str], list[int]] = {}
    for partition in reader.list_topics(STREAM, timeout=10).topics[STREAM].partitions:
        topic_partition = TopicPartition(STREAM, partition, 0)
        _, end = reader.get_watermark_offsets(topic_partition, timeout=10)
        reader.assign([topic_partition])
        position = 0
        while position < end:
            for record in reader.consume(500, timeout=5):
                position = (record.offset() or 0) + 1
                input_partition, _, offset = texts(record.headers())["origin"].partition(":")
                offsets_by_partitions.setdefault((partition, input_partition), []).append(int(offset))
    reader.close()
    return [list(dict.fromkeys(offsets)) for offsets in offsets_by_partitions.values()]


def test_a_frozen_broker_leaves_no_gap(lab: Lab, tmp_path: Path) -> None:
    with second_broker(lab, tmp_path) as broker:
        recreate_on(lab, 2)
        for host, tier in (("h1", "entry"), ("h2", "enrich"), ("h3", "counts"), ("h3", "outbound")):
            lab.start_owner(tier, 1, host)
        for tier in ("entry", "enrich", "counts", "outbound"):
            lab.wait_for(tier, 1, State.RUNNING)
        lab.start_feed(RATE)
        until("records are delivered", lambda: lab.delivered()[0] > RATE)
        for seconds in FREEZE_SECONDS:
            broker.send_signal(signal.SIGSTOP)
            thaw_at = monotonic() + seconds
            while monotonic() < thaw_at:
                sleep(0.05)
            broker.send_signal(signal.SIGCONT)
            before = lab.delivered()[0]
            until("records are delivered again", lambda before=before: lab.delivered()[0] > before + RATE)
        fed = lab.stop_feed()
        until("every hit is delivered", lambda: lab.delivered() == (fed, fed))
        assert all(offsets == sorted(offsets) for offsets in origins(lab))
        until(
            "the counts agree",
            lambda: lab.query("select sum(views + clicks + buys) from campaign_counts") == [(fed,)],
            60,
        )
        log = lab.log("entry", 1)
        assert "Kafka did not take a record in time" in log, [
            line for line in log.splitlines() if "executor" in line.lower()
        ]
