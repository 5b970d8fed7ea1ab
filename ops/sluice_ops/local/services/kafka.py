"""Kafka: one broker from the locked jars, which is also its own controller (KRaft)."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.services import jvm, kafka_users
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.local.start.supervisord import STOPPED
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import PlatformError
from sluice_ops.site.java import JAVA, STARTED_OFTEN

HEAP = 320
ROOM = 256
"""MiB of free disk before the broker starts.

A broker that starts on a full disk treats its metadata as corrupt, and starts without metadata, so
all streams would be lost. A running broker stops when the disk is full, and loses nothing.
"""
_WAIT_FOR_ROOM = (
    'while free=$(df -Pm "$0" | { read -r _; read -r _ _ _ free _; echo "$free"; }); [ "$free" -lt "$1" ]; '
    'do echo "kafka waits for disk space: $free MiB are free at $0, $1 are needed; a start on a full disk '
    'would lose all streams; make room"; sleep 5; done; shift; exec "$@"'
)


def properties(layout: Layout, *, users: bool) -> str:
    """Return the broker's configuration: one replica, few threads, small buffers.

    `users`: the broker asks for a user.
    """
    protocol = kafka_users.PROTOCOL if users else "PLAINTEXT"
    client, quorum = f"{ADDRESS}:{layout.ports.kafka}", f"{ADDRESS}:{layout.ports.kafka_controller}"
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{quorum}
listeners={protocol}://{client},CONTROLLER://{quorum}
advertised.listeners={protocol}://{client}
controller.listener.names=CONTROLLER
inter.broker.listener.name={protocol}
log.dirs={layout.data / "kafka"}
auto.create.topics.enable=false
num.partitions=4
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
background.threads=2
num.recovery.threads.per.data.dir=2
log.segment.bytes=134217728
log.retention.hours=72
log.cleaner.dedupe.buffer.size=16777216
{kafka_users.settings(layout) if users else ""}"""


def asks_for_users(layout: Layout, states: dict[str, dict[str, Any]], *, otherwise: bool) -> bool:
    """Return True if the running broker was started with users; `otherwise` if no broker runs.

    A running broker keeps its setting, because its clients use it.
    """
    config = _config(layout)
    if states.get("kafka", {}).get("statename", "STOPPED") in STOPPED or not config.exists():
        return otherwise
    return kafka_users.PROTOCOL in config.read_text()


def _config(layout: Layout) -> Path:
    return layout.conf / "kafka.properties"


def service(layout: Layout, *, users: bool) -> Service:
    """Return the broker as a service; with `users`, it asks for a user and has access lists."""
    config, data = _config(layout), layout.data / "kafka"
    program = (str(JAVA),)
    jars = f"{layout.broker_jars}/*"

    def prepare() -> None:
        write_private(config, properties(layout, users=users))
        if (data / "meta.properties").exists():
            return
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a")
        command = [
            *program, "-Xmx128m", *STARTED_OFTEN, "-XX:+UseSerialGC", jvm.log_config(layout), "-cp", jars,
            "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            message = (
                f"Kafka could not format its data folder {data}: "
                f"{(done.stderr or done.stdout).strip()[-400:]}; correct the cause and start again"
            )
            raise PlatformError(message)

    def ready() -> None:
        settings = (
            kafka_users.admin(layout) if users else {"bootstrap.servers": f"{ADDRESS}:{layout.ports.kafka}"}
        )
        client = AdminClient({**settings, "log_level": 0, "socket.timeout.ms": 2000})
        try:
            metadata = client.list_topics(timeout=2)
        except KafkaException as error:
            message = f"the broker does not answer a metadata request: {error.args[0].str()}"
            raise NotReadyError(message) from error
        if not metadata.brokers:
            message = "no broker has registered"
            raise NotReadyError(message)

    def after() -> None:
        if users:
            kafka_users.create_all(layout)

    broker = (
        *program,
        *jvm.options(layout, "kafka", HEAP, busy=True),
        "-cp",
        jars,
        "kafka.Kafka",
        str(config),
    )
    command = ("sh", "-c", _WAIT_FOR_ROOM, str(data), str(ROOM), *broker)
    return Service(
        "kafka",
        Program(command, nice=-5, stop_seconds=30),
        ready,
        prepare,
        after,
        needs=("jars",),
        ports=(layout.ports.kafka, layout.ports.kafka_controller),
    )
