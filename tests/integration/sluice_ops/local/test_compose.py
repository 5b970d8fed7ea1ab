"""docker-compose.yaml under podman: up, down and up again, with containers killed, and every record
delivered once.
"""

import json
import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sluice_ops.local import images
from tests.integration.sluice_ops.local.podman_compose import Compose, Podman
from tests.lab import ROOT, free_ports

pytestmark = [
    pytest.mark.endurance,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(shutil.which(name) for name in ("podman", "runc", "debootstrap")),
        reason="needs root and the packages podman, runc, netavark, aardvark-dns and debootstrap",
    ),
]

HAS_CGROUP_V1 = Path("/sys/fs/cgroup/memory").is_dir()
DELIVERED = (
    "select count(*), count(distinct id) from delivered where substring(id from 5)::bigint between {} and {}"
)
COUNT = 200
DEADLINE_SECONDS = 240


class Project:
    """A running project, and queries of it."""

    def __init__(self, compose: Compose, prometheus: int) -> None:
        self.compose = compose
        self.prometheus = prometheus
        self.first = 1

    def sql(self, query: str) -> list[str]:
        command = f'PGPASSWORD=$(cat /etc/sluice/password) psql -h localhost -U sluice -At -F , -c "{query}"'
        return self.compose.podman("exec", f"{self.compose.name}-postgres-1", "sh", "-c", command).split()

    def feed(self) -> None:
        """Feed the next numbered hits."""
        words = ["--rate", "20", "--count", str(COUNT), "--first", str(self.first), "--json"]
        self.compose.run("feed", "python", "-m", "hits.feed", *words)
        self.first += COUNT

    def all_are_delivered(self) -> bool:
        """Tell whether each hit that was fed is delivered once."""
        fed = self.first - 1
        return self.sql(DELIVERED.format(1, fed)) == [f"{fed},{fed}"]

    def units(self, host: str) -> dict[str, int]:
        """Return the processes of a host's slots and drivers, by the names of their folders."""
        print_live_unit = 'read -r pid _ < "$f"; [ -d /proc/"$pid" ] && echo "$f" "$pid"'
        script = f'cd /var/lib/sluice/hosts/"$0"/units && for f in */pid; do {print_live_unit}; done; true'
        lines = self.compose.podman(
            "exec", f"{self.compose.name}-{host}-1", "sh", "-c", script, host
        ).splitlines()
        return {name: int(pid) for name, pid in (line.split() for line in lines)}

    def kill(self, container: str) -> None:
        """Kill a container's first process, as the kernel does if memory is short."""
        os.kill(self.compose.state(container)["Pid"], signal.SIGKILL)

    def prometheus_api(self, path: str) -> Any:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.prometheus}/api/v1/{path}", timeout=10
        ) as answer:
            return json.load(answer)["data"]


def until(condition: str, check: Callable[[], bool], seconds: float = DEADLINE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"after {seconds} s still not true:{condition}"
        time.sleep(1)


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    podman = Podman(ROOT / ".sluice" / "containers")
    airflow, prometheus = free_ports(2)
    groups = Path("/sys/fs/cgroup") if HAS_CGROUP_V1 else Path("/sys/fs/cgroup/sluice-compose")
    groups.mkdir(exist_ok=True)
    ports = {"AIRFLOW_PORT": str(airflow), "PROMETHEUS_PORT": str(prometheus)}
    compose = Compose(podman, images.make(podman) | ports | {"SLUICE_CGROUPS": str(groups)})
    compose.clean()
    try:
        compose.up()
        yield Project(compose, prometheus)
    finally:
        compose.clean()


def test_the_compose_file_delivers_refuses_strangers_and_restarts(project: Project) -> None:
    compose = project.compose
    project.feed()
    until("the first hits are delivered", project.all_are_delivered)

    access_report = compose.run("services", "sluice", "access")
    assert "Every node has the right access list" in access_report
    anonymous_write = (
        "from kazoo.client import KazooClient as K; "
        "k = K('zookeeper:2181/sluice/hits'); k.start(); k.set('/controller/epoch', b'9')"
    )
    assert not compose.podman.succeeds("exec", f"{compose.name}-h1-1", "python", "-c", anonymous_write), (
        "ZooKeeper refuses an anonymous write"
    )
    anonymous_list = (
        "from confluent_kafka.admin import AdminClient as A; "
        "A({'bootstrap.servers': 'kafka:9092'}).list_topics(timeout=5)"
    )
    assert not compose.podman.succeeds("exec", f"{compose.name}-h1-1", "python", "-c", anonymous_list), (
        "Kafka refuses an anonymous client"
    )
    hosts = json.loads(compose.run("airflow-api", "sluice", "hosts", "--json"))
    limits = {host["name"]: host["limits"] for host in hosts}
    expected = "cgroup v1" if HAS_CGROUP_V1 else "cgroup v2"
    assert limits == dict.fromkeys(("h1", "h2", "h3"), expected), "control groups work without privileges"
    until("Prometheus has the shipped rules", lambda: bool(project.prometheus_api("rules")["groups"]), 60)
    until(
        "Prometheus finds every tier's driver",
        lambda: _scraped(project) >= {"agent", "audit", "controller", "driver"},
        90,
    )

    host, before = next((name, units) for name in ("h1", "h2", "h3") if (units := project.units(name)))
    compose.podman("exec", f"{compose.name}-{host}-1", "pkill", "-KILL", "--full", "sluice_ops.agent --host")
    project.feed()
    until("hits fed while an agent is away are delivered", project.all_are_delivered)
    until("the agent is back", lambda: compose.healthy(host))
    assert before.items() <= project.units(host).items(), "slots and drivers outlive their agent"

    compose.down()
    compose.up()
    project.feed()
    until("hits are delivered after down and up", project.all_are_delivered)

    with ThreadPoolExecutor() as pool:
        feeding = pool.submit(project.feed)
        time.sleep(4)
        for container in (f"{compose.name}-kafka-1", f"{compose.name}-{host}-1"):
            project.kill(container)
        feeding.result()
    until("no hit is lost with two killed containers", project.all_are_delivered)
    compose.run("airflow-api", "sluice", "audit")


def _scraped(project: Project) -> set[str]:
    samples = project.prometheus_api("query?query=up==1")["result"]
    return {sample["metric"]["role"] for sample in samples if "role" in sample["metric"]}
