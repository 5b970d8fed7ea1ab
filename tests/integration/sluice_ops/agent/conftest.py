"""A ZooKeeper server and a Spark master for tests, and agents as processes that a test can kill."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

from sluice_ops.agent.host.processes import Process
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.assignment import (
    Assignment,
    Observed,
    Unit,
    UnitKind,
    UnitObserved,
    driver_id,
    label_of,
    slot_id,
)
from sluice_ops.model.ids import Incarnation, Tenant
from sluice_ops.model.resources import Quantum
from sluice_ops.site.java import JAVA, home_for_spark

JARS = (
    Path(sys.prefix)
    / "lib"
    / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    / "site-packages"
    / "pyspark"
    / "jars"
)
SETTINGS = "tickTime=500\nadmin.enableServer=false\nmaxClientCnxns=0\nmaxSessionTimeout=20000\n"
REPOSITORY = Path(__file__).resolve().parents[4]
T = TypeVar("T")
DEADLINE_SECONDS = 180
"""The deadline of a wait: each wait takes a second or two on an idle machine."""


def until(condition: str, check: Callable[[], T], seconds: float = DEADLINE_SECONDS) -> T:
    end = time.monotonic() + seconds
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < end, f"after {seconds} s still not true:{condition}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class ZooKeeper:
    """A server that can be stopped, and started again with its data."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = self.folder / "zoo.cfg"
        lines = (
            f"dataDir={self.folder}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "tickTime=500",
            "admin.enableServer=false",
        )
        config.write_text("\n".join((*lines, "maxClientCnxns=0", "maxSessionTimeout=20000")))
        words = [
            str(JAVA),
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-cp",
            f"{JARS}/*",
            "org.apache.zookeeper.server.ZooKeeperServerMain",
            str(config),
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        until("ZooKeeper answers", lambda: answers(self.port))

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"), free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("master") / "log"
    words = [
        str(JAVA),
        "-Xmx192m",
        "-XX:+UseSerialGC",
        "-Dspark.master.rest.enabled=false",
        "-Dspark.decommission.enabled=true",
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
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
    until("the Spark master is alive", lambda: "New state: ALIVE" in log.read_text())
    yield f"spark://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@dataclass
class Lab:
    """A home with agents."""

    home: Path
    zookeeper: ZooKeeper
    master: str
    channel: Channel
    environment: dict[str, str]
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_agent(
        self,
        host: str = "h1",
        *words: str,
        home: Path | None = None,
        clock: Path | None = None,
        hangs: Path | None = None,
        code: Path = REPOSITORY,
    ) -> subprocess.Popen[bytes]:
        """Start an agent.

        Its wall clock is as many seconds ahead as the file `clock` says; its loop hangs once the
        file `hangs` exists.
        """
        environment = self.environment if home is None else {**self.environment, "SLUICE_HOME": str(home)}
        clock_module = [] if clock is None else ["tests.shifted_clock", str(clock)]
        hang_module = [] if hangs is None else ["tests.hang_on_file", str(hangs)]
        process = self.run(
            f"agent-{host}",
            *clock_module,
            *hang_module,
            "sluice_ops.agent",
            "--host",
            host,
            *words,
            environment=environment,
            code=code,
        )
        self.agents.append(process)
        return process

    def run(self, log: str, *words: str, environment: dict[str, str], code: Path) -> subprocess.Popen[bytes]:
        """Run a module of the given checkout."""
        with (self.home / f"{log}.log").open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**environment, "PYTHONPATH": f"{code}/ops:{code}/pipeline:{code}"},
                cwd=code,
                stdout=file,
                stderr=file,
            )

    @contextmanager
    def running_controller(self, site: str) -> Iterator[None]:
        """Run a controller with this site file, and print all logs at the end.

        Agents that start from now on read the same file.
        """
        file = self.home / "site.yaml"
        file.write_text(site)
        self.environment["SLUICE_SITE"] = str(file)
        words = ("--site", str(file), "--name", "c1", "--zookeeper", self.channel.hosts)
        controller = self.run(
            "controller", "sluice_ops.controller", *words, environment=self.environment, code=REPOSITORY
        )
        try:
            yield
        finally:
            controller.terminate()
            controller.wait(20)
            sys.stdout.writelines(
                f"--- {log.name}\n{log.read_text()[-6000:]}\n" for log in self.home.glob("*.log")
            )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def assign(self, *units: Unit, host: str = "h1", reboot: str | None = None) -> None:
        self.channel.put(paths.assignment(host), Assignment(epoch=1, units=units, reboot=reboot))

    def observed(self, host: str = "h1") -> Observed | None:
        versioned = self.channel.read(paths.observed(host), Observed)
        return None if versioned is None else versioned.value

    def unit(self, unit: Unit, host: str = "h1") -> UnitObserved | None:
        seen = self.observed(host)
        return (
            None
            if seen is None
            else next((observed_unit for observed_unit in seen.units if observed_unit.id == unit.id), None)
        )

    def wait_running(self, unit: Unit, host: str = "h1") -> UnitObserved:
        return until(
            f"{unit.id} runs",
            lambda: (seen := self.unit(unit, host)) and seen.state == "running" and seen.pid and seen,
        )

    def wait_gone(self, unit: Unit, host: str = "h1") -> None:
        until(
            f"{unit.id} is gone",
            lambda: (seen := self.observed(host)) is not None and self.unit(unit, host) is None and seen,
        )

    def log(self, unit: Unit, host: str = "h1") -> str:
        path = HostFolder(self.home, host).unit(unit.id).log
        return path.read_text() if path.exists() else ""

    def unit_processes(self, unit: Unit, host: str = "h1") -> dict[int, str]:
        """Return the processes in a unit's control group, with their command lines."""
        session = HostFolder(self.home, host).unit(unit.id).session()
        command_lines = {}
        for pid in find_containers(self.home, host).processes(unit.id, session.pid if session else None):
            with suppress(OSError):
                command_lines[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        return command_lines

    def main(self, unit: Unit, host: str = "h1") -> Process:
        return until(
            f"{unit.id} has a main process", lambda: HostFolder(self.home, host).unit(unit.id).main()
        )

    def has_logged(self, words: str, host: str = "h1") -> bool:
        """Tell whether the log of the host's agents contains `words`."""
        return words in (self.home / f"agent-{host}.log").read_text()


@pytest.fixture
def lab(tmp_path: Path, zookeeper: ZooKeeper, master: str) -> Iterator[Lab]:
    home = tmp_path / "home"
    home.mkdir()
    chroot = f"/{tmp_path.name}"
    root = KazooClient(f"127.0.0.1:{zookeeper.port}")
    root.start()
    root.ensure_path(chroot)
    root.stop()
    root.close()
    endpoints = {
        "kafka": "127.0.0.1:1",
        "zookeeper": f"127.0.0.1:{zookeeper.port}{chroot}",
        "postgres": "postgresql://nobody@127.0.0.1:1/none",
        "airflow": {"url": "http://127.0.0.1:1", "user": "admin", "password": "x"},
        "spark": master,
        "home": str(home),
    }
    (home / "endpoints.json").write_text(json.dumps(endpoints))
    environment = {**os.environ, "SLUICE_HOME": str(home), "SLUICE_SITE": str(REPOSITORY / "site.yaml")}
    environment.pop("SLUICE_ENDPOINTS", None)
    with Channel(endpoints["zookeeper"]) as channel:
        agents_lab = Lab(home, zookeeper, master, channel, environment)
        yield agents_lab
        for process in agents_lab.agents:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
        for host in sorted((home / "hosts").iterdir()) if (home / "hosts").exists() else ():
            words = [sys.executable, "-m", "sluice_ops.agent", "--stop-all", "--host", host.name]
            subprocess.run(words, env=environment, cwd=REPOSITORY, check=True, capture_output=True)
    shutil.rmtree(home, ignore_errors=True)


def slot(
    tenant: str = "entry", number: int = 0, *, quiet: bool = False, memory: int = 800, disk: int | None = None
) -> Unit:
    return Unit(
        id=slot_id(tenant, 1, number),
        kind=UnitKind.SLOT,
        tenant=Tenant(tenant),
        incarnation=Incarnation(1),
        quantum=Quantum(cpu=1, memory=memory, threads=2, disk=disk),
        label=label_of(tenant, 1),
        quiet=quiet,
    )


def driver(tenant: str = "no-such-tier") -> Unit:
    return slot(tenant).model_copy(update={"id": driver_id(tenant, 1), "kind": UnitKind.DRIVER})


APPLICATION = Path(__file__).with_name("application.py")
EXECUTOR = "CoarseGrainedExecutorBackend"
limited = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make control groups")


def application(lab: Lab, label: str, seconds: float) -> subprocess.Popen[str]:
    words = [sys.executable, str(APPLICATION), lab.master, label, str(seconds)]
    environment = {
        **lab.environment,
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(home_for_spark(lab.home)),
    }
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


def executors(lab: Lab, unit: Unit) -> list[int]:
    return [pid for pid, words in lab.unit_processes(unit).items() if EXECUTOR in words]
