"""Storm: one topology for the whole chain with ackers, on a Nimbus and two supervisors that use the
bench's ZooKeeper.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE

import psutil

from tests.bench.peers import java
from tests.bench.peers.system import Deed, Peer, Programs
from tests.lab import free_ports, until

WORKERS = 2
SUPERVISORS = ("here", "there")
SETTINGS = """\
storm.zookeeper.servers: ["{zookeeper_host}"]
storm.zookeeper.port: {zookeeper_port}
storm.zookeeper.root: /storm
nimbus.seeds: ["127.0.0.1"]
nimbus.thrift.port: {nimbus}
nimbus.monitor.freq.secs: 3
nimbus.task.timeout.secs: 10
nimbus.supervisor.timeout.secs: 10
storm.local.hostname: 127.0.0.1
storm.local.dir: {home}/local
storm.log.dir: {home}/logs
storm.workers.artifacts.dir: {home}/artifacts
storm.log4j2.conf.dir: {home}/log4j2
supervisor.worker.shutdown.sleep.secs: 1
supervisor.worker.timeout.secs: 10
supervisor.monitor.frequency.secs: 1
supervisor.childopts: -Xmx256m
worker.childopts: -Xmx512m
worker.heap.memory.mb: 512
topology.worker.logwriter.childopts: -Xmx32m
"""
PORTS = """\
supervisor.slots.ports: {slots}
supervisor.thrift.port: {thrift}
"""
DAEMON_LOG = """\
<Configuration>
<Appenders><Console name="out"><PatternLayout pattern="%d %c{1} [%p] %msg%n"/></Console></Appenders>
<Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
WORKER_LOG = DAEMON_LOG.replace(
    '<Console name="out">',
    '<File name="out" fileName="${sys:workers.artifacts}/worker-${sys:worker.port}.log">',
)
WORKER_LOG = WORKER_LOG.replace("</Console>", "</File>")


class Storm(Peer):
    def __init__(self, folder: Path, kafka: str, zookeeper: str) -> None:
        self._programs = Programs(folder)
        self._kafka = kafka
        self._zookeeper = zookeeper.partition("/")[0].rpartition(":")

    def start(self) -> None:
        folder, jars = self._programs.folder, java.fetched("storm")
        nimbus, *ports = free_ports(1 + 3 * len(SUPERVISORS))
        self._program(
            "nimbus", jars, self._home("nimbus", jars, nimbus, []), "org.apache.storm.daemon.nimbus.Nimbus"
        )
        for number, name in enumerate(SUPERVISORS):
            home = self._home(name, jars, nimbus, ports[3 * number : 3 * number + 3])
            self._program(name, jars, home, "org.apache.storm.daemon.supervisor.Supervisor")
        jar = java.compiled("StormPass", jars, folder)
        control = [
            "-Xmx128m",
            f"-Dstorm.jar={jar}",
            "-cp",
            f"{jar}:{jars}/*:{folder}/nimbus/conf",
            "StormPass",
        ]
        self._programs.start("control", [*self._java("nimbus"), *control], stdin=PIPE)
        self._answers = 0
        until(
            "Storm's supervisors are registered", lambda: self._command("status")[2] == str(len(SUPERVISORS))
        )
        self._command(f"submit {self._kafka} raw three {WORKERS}")
        self.ready()

    def _home(self, name: str, jars: Path, nimbus: int, ports: list[int]) -> Path:
        """Create the folders of a Storm installation."""
        home = self._programs.folder / name
        for inner in ("conf", "log4j2", "logs", "extlib", "extlib-daemon"):
            (home / inner).mkdir(parents=True)
        for inner in ("lib", "lib-worker"):
            (home / inner).symlink_to(jars)
        host, _, port = self._zookeeper
        text = SETTINGS.format(zookeeper_host=host, zookeeper_port=port, nimbus=nimbus, home=home)
        if ports:
            text += PORTS.format(slots=ports[1:], thrift=ports[0])
        (home / "conf" / "storm.yaml").write_text(text)
        (home / "log4j2" / "cluster.xml").write_text(DAEMON_LOG)
        (home / "log4j2" / "worker.xml").write_text(WORKER_LOG)
        return home

    def _java(self, name: str) -> list[str]:
        home = self._programs.folder / name
        log = f"-Dlog4j2.configurationFile={home}/log4j2/cluster.xml"
        return [
            str(java.home() / "bin" / "java"),
            f"-Dstorm.home={home}",
            f"-Dstorm.log.dir={home}/logs",
            "-Dstorm.conf.file=storm.yaml",
            log,
        ]

    def _program(self, name: str, jars: Path, home: Path, main: str) -> None:
        self._programs.start(name, [*self._java(name), "-Xmx256m", "-cp", f"{jars}/*:{home}/conf", main])

    def _command(self, command: str) -> list[str]:
        """Run a command of the control program; return the topology's state, its workers, and the
        supervisors.
        """
        self._programs.input("control").write(f"{command}\n")
        self._programs.input("control").flush()
        self._answers += 1

        def answer() -> list[str]:
            self._programs.check()
            answers = [
                line
                for line in self._programs.log("control").read_text().splitlines()
                if line.startswith("told ")
            ]
            return answers[self._answers - 1].split()[1:] if len(answers) >= self._answers else []

        return until(f"Storm answers `{command}`", answer)

    def _workers(self) -> list[psutil.Process]:
        return [
            process
            for process in self._programs.all()
            if "org.apache.storm.daemon.worker.Worker" in (words := process.cmdline())
            and "org.apache.storm.LogWriter" not in words
        ]

    def ready(self) -> None:
        until("Storm's topology is active", lambda: self._command("status")[0] == "ACTIVE")

    def moves(self) -> Mapping[str, Deed]:
        return {
            "rebalance to 1 worker": lambda: self._rebalance(1),
            "rebalance to 2 workers": lambda: self._rebalance(2),
        }

    def _rebalance(self, workers: int) -> float:
        started = time.time()
        self._command(f"rebalance {workers}")
        until(f"Storm has {workers} workers", lambda: self._command("status")[:2] == ["ACTIVE", str(workers)])
        return started

    def kills(self) -> Mapping[str, Deed]:
        return {"worker": self._kill}

    def _kill(self) -> float:
        victim = self._workers()[0]
        killed_at = time.time()
        victim.kill()
        return killed_at
