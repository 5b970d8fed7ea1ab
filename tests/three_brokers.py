"""Three Kafka brokers, each with a disk that a test may destroy."""

import shutil
import subprocess
import threading
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from sluice_ops.local import fetch_jars
from sluice_ops.local.layout import LOWEST_BASE, Layout, Ports
from sluice_ops.local.services import kafka
from sluice_ops.site.java import JAVA
from tests.lab import ROOT, free_ports, until

NODES = (1, 2, 3)
CLUSTER = urlsafe_b64encode(b"sluice-three-dis").decode().rstrip("=")


class ThreeBrokers:
    """The brokers, each also a controller, so that after the loss of one the other two are a
    quorum.
    """

    def __init__(self, folder: Path) -> None:
        """Start the brokers with empty disks, and wait until all three are up."""
        ports = free_ports(2 * len(NODES))
        self._clients = dict(zip(NODES, ports, strict=False))
        self._quorum = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._folder = folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._logs = ExitStack()
        self._where = Layout(home=folder, ports=Ports.above(LOWEST_BASE), site=ROOT / "site.yaml")
        self._where.make_folders()
        fetch_jars.fetch(self._where, threading.Event())
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._clients.values())
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        for node in NODES:
            self.start(node)
        until("three brokers are up", lambda: self.count() == len(NODES), seconds=120)

    def count(self) -> int:
        """Return how many brokers the cluster reports as up."""
        try:
            return len(self.admin.list_topics(timeout=2).brokers)
        except Exception:  # noqa: BLE001 - the brokers are not up yet
            return 0

    def start(self, node: int) -> None:
        """Start a broker, with an empty disk if it has none."""
        ports = replace(self._where.ports, kafka=self._clients[node], kafka_controller=self._quorum[node])
        where = replace(self._where, ports=ports)
        voters = ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in self._quorum.items())
        config, disk = self._folder / f"{node}.properties", self.disk(node)
        # if a key is set twice, Kafka uses the last value
        own = f"node.id={node}\ncontroller.quorum.voters={voters}\nlog.dirs={disk}\n"
        config.write_text(kafka.properties(where, users=False) + own)
        program = [str(JAVA), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{where.broker_jars}/*"]
        if not disk.exists():
            command = [*program, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)]
            subprocess.run(command, check=True, capture_output=True)
        log = self._logs.enter_context((self._folder / f"{node}.log").open("a"))
        self._running[node] = subprocess.Popen([*program, "kafka.Kafka", str(config)], stdout=log, stderr=log)

    def disk(self, node: int) -> Path:
        """Return the folder of a broker's logs."""
        return self._folder / f"disk-{node}"

    def kill(self, node: int) -> None:
        """Kill a broker; its disk stays."""
        broker = self._running.pop(node)
        broker.kill()
        broker.wait()

    def stop(self, node: int) -> None:
        """Stop a broker in order: it hands its partitions over first."""
        broker = self._running.pop(node)
        broker.terminate()
        broker.wait(60)

    def destroy(self, node: int) -> None:
        """Kill a broker, and delete its disk."""
        self.kill(node)
        shutil.rmtree(self.disk(node))

    def replace_disk(self, node: int, stream: str) -> None:
        """Destroy a broker's disk, start it with an empty one, and elect it leader of `stream`.

        An operator has to do the same for a stream that only this broker had.
        """
        self.destroy(node)
        self.start(node)
        until(f"broker {node} is back", lambda: self.count() == len(NODES), seconds=120)
        self.force_leader(node, stream)

    def force_leader(self, node: int, stream: str) -> None:
        """Elect a broker leader of a stream's partitions without a leader, even if the broker lacks
        records (unclean).
        """
        until(f"{stream} has a partition without a leader", lambda: self.leaderless(stream), seconds=60)
        lost = self.leaderless(stream)

        def elected() -> bool:
            self.admin.elect_leaders(ElectionType.UNCLEAN, lost).result(30)
            return all(self.leader(stream, one.partition) == node for one in lost)

        until(f"broker {node} leads {stream}", elected, seconds=90)

    def leaderless(self, stream: str) -> list[TopicPartition]:
        """Return the stream's partitions without a leader."""
        partitions = self.admin.list_topics(stream, timeout=10).topics[stream].partitions.values()
        return [TopicPartition(stream, one.id) for one in partitions if one.leader not in NODES]

    def leader(self, stream: str, partition: int = 0) -> int:
        """Return the leader of a stream's partition, below 0 if it has none."""
        return int(self.admin.list_topics(stream, timeout=10).topics[stream].partitions[partition].leader)

    def in_sync(self, stream: str) -> set[int]:
        """Return the in-sync replicas of a stream's first partition."""
        return set(self.admin.list_topics(stream, timeout=10).topics[stream].partitions[0].isrs)

    def all_in_sync(self, stream: str) -> bool:
        """Tell whether each partition has a leader and all its replicas are in sync."""
        partitions = self.admin.list_topics(stream, timeout=5).topics[stream].partitions.values()
        return all(
            partition.leader in NODES and set(partition.isrs) == set(partition.replicas)
            for partition in partitions
        )

    def end(self) -> None:
        """Kill all brokers."""
        for broker in self._running.values():
            broker.kill()
            broker.wait()
        self._logs.close()
