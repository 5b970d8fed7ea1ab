"""Two Spark masters with the settings of `docker-compose.yaml`: one leads, the other stands by.

ZooKeeper keeps their state.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sluice_ops.site.java import JAVA
from tests.integration.sluice_ops.agent.conftest import (
    JARS,
    REPOSITORY,
    Lab,
    ZooKeeper,
    application,
    executors,
    free_port,
    slot,
    until,
)

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


class Masters:
    """Master processes, by port."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        services = yaml.safe_load((REPOSITORY / "docker-compose.yaml").read_text())["services"]
        self.settings = [word for word in services["spark-1"]["command"][-1].split() if word.startswith("-D")]
        assert "-Dspark.deploy.recoveryMode=ZOOKEEPER" in self.settings
        self.settings = [
            word if "zookeeper.url=" not in word else f"-Dspark.deploy.zookeeper.url={zookeeper}"
            for word in self.settings
        ]
        self.folder = folder
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> int:
        port = free_port()
        words = [
            str(JAVA),
            "-Xmx192m",
            "-XX:+UseSerialGC",
            *self.settings,
            "-Dspark.master.rest.enabled=false",
            "-cp",
            f"{JARS}/*",
        ]
        words += [
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        ]
        with self._log(port).open("wb") as log:
            self.running[port] = subprocess.Popen(words, stdout=log, stderr=log)
        return port

    def kill(self, port: int) -> None:
        process = self.running.pop(port)
        process.kill()
        process.wait()

    def _log(self, port: int) -> Path:
        return self.folder / f"{port}.log"

    def log_has(self, port: int, words: str) -> bool:
        return words in self._log(port).read_text()


@pytest.fixture
def masters(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Masters]:
    both_masters = Masters(tmp_path, f"127.0.0.1:{zookeeper.port}")
    yield both_masters
    for port in list(both_masters.running):
        both_masters.kill(port)


@pytest.fixture
def master(masters: Masters) -> str:
    """Start both masters; the first leads."""
    first = masters.start()
    until("the first master leads", lambda: masters.log_has(first, "New state: ALIVE"))
    second = masters.start()
    until(
        "the second master stands by",
        lambda: masters.log_has(second, "Starting ZooKeeper LeaderElection agent"),
    )
    return f"spark://127.0.0.1:{first},127.0.0.1:{second}"


def test_the_second_master_takes_over_workers_when_the_first_is_killed(lab: Lab, masters: Masters) -> None:
    first, second = masters.running
    lab.start_agent()
    lab.assign(slot())
    worker = lab.wait_running(slot())
    work = application(lab, slot().label, 40)
    before = until("an executor in the slot's control group", lambda: executors(lab, slot()))
    assert not masters.log_has(second, "I have been elected leader!")
    masters.kill(first)
    until("the second master leads", lambda: masters.log_has(second, "- resuming operations!"))
    assert work.poll() is None, "the application still runs"
    assert executors(lab, slot()) == before
    out, _ = work.communicate(timeout=400)
    assert out.strip() == "result [7]"
    later, _ = application(lab, slot().label, 0).communicate(timeout=400)
    assert later.strip() == "result [7]", "the second master gives later applications their worker"
    seen = lab.wait_running(slot())
    assert (seen.pid, seen.restarts) == (worker.pid, worker.restarts)
