"""Three Kafka brokers of a test's own, each with a disk that the test may destroy."""

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


class Three:
    """The brokers; each is a controller too, so that the loss of any one leaves a quorum."""

    def __init__(self, folder: Path) -> None:
        """Start them, on empty disks."""
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
        until("three brokers are there", lambda: self.count() == len(NODES), seconds=120)

    def count(self) -> int:
        """Return how many brokers the cluster knows to be up."""
        try:
            return len(self.admin.list_topics(timeout=2).brokers)
        except Exception:  # noqa: BLE001 - not yet
            return 0

    def start(self, node: int) -> None:
        """Start a broker, on an empty disk where it has none."""
        ports = replace(self._where.ports, kafka=self._clients[node], kafka_controller=self._quorum[node])
        where = replace(self._where, ports=ports)
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._quorum.items())
        config, disk = self._folder / f"{node}.properties", self.disk(node)
        own = f"node.id={node}\ncontroller.quorum.voters={voters}\nlog.dirs={disk}\n"  # of a key that is said twice, the last one holds
        config.write_text(kafka.properties(where, users=False) + own)
        program = [str(JAVA), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{where.broker_jars}/*"]
        if not disk.exists():
            command = [*program, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)]
            subprocess.run(command, check=True, capture_output=True)
        log = self._logs.enter_context((self._folder / f"{node}.log").open("a"))
        self._running[node] = subprocess.Popen([*program, "kafka.Kafka", str(config)], stdout=log, stderr=log)

    def disk(self, node: int) -> Path:
        """Return the folder of a broker's log."""
        return self._folder / f"disk-{node}"

    def kill(self, node: int) -> None:
        """Kill a broker; its disk stays."""
        broker = self._running.pop(node)
        broker.kill()
        broker.wait()

    def stop(self, node: int) -> None:
        """Have a broker hand its partitions over, and end."""
        broker = self._running.pop(node)
        broker.terminate()
        broker.wait(60)

    def destroy(self, node: int) -> None:
        """Kill a broker, and remove all that it had."""
        self.kill(node)
        shutil.rmtree(self.disk(node))

    def replace_disk(self, node: int, stream: str) -> None:
        """Destroy a broker's disk and start it on an empty one; have it lead again what it alone had, as a person has to."""
        self.destroy(node)
        self.start(node)
        until(f"broker {node} is back", lambda: self.count() == len(NODES), seconds=120)
        self.force_leader(node, stream)

    def force_leader(self, node: int, stream: str) -> None:
        """Have a broker lead a stream that has no leader, whatever the broker lacks of it."""
        until(f"{stream} has no leader", lambda: self.leader(stream) not in NODES, seconds=60)

        def elected() -> bool:
            partitions = self.admin.list_topics(stream, timeout=10).topics[stream].partitions
            lost = [TopicPartition(stream, number) for number in partitions]
            self.admin.elect_leaders(ElectionType.UNCLEAN, lost).result(30)
            return self.leader(stream) == node

        until(f"broker {node} leads {stream}", elected, seconds=90)

    def leader(self, stream: str, partition: int = 0) -> int:
        """Return which broker leads a partition of a stream; no broker's number where none does."""
        return int(self.admin.list_topics(stream, timeout=10).topics[stream].partitions[partition].leader)

    def in_sync(self, stream: str) -> set[int]:
        """Return which brokers have all of the first partition of a stream."""
        return set(self.admin.list_topics(stream, timeout=10).topics[stream].partitions[0].isrs)

    def all_in_sync(self, stream: str) -> bool:
        """Tell whether each partition of a stream has a leader, and all of its replicas are in sync."""
        partitions = self.admin.list_topics(stream, timeout=5).topics[stream].partitions.values()
        return all(each.leader in NODES and set(each.isrs) == set(each.replicas) for each in partitions)

    def end(self) -> None:
        """Kill all."""
        for broker in self._running.values():
            broker.kill()
            broker.wait()
        self._logs.close()
