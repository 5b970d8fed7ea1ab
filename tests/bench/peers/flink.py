"""Flink: one job for each stage on a session cluster, with no linger in its producers and its adaptive scheduler set to act at once."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.bench.peers import java
from tests.bench.peers.system import Deed, Peer, Programs
from tests.lab import free_ports, until

STAGES = {"first": ("raw", "one"), "second": ("one", "two"), "third": ("two", "three")}
PARALLELISM = 2
"""Of each stage: as many as there are processors."""
OPENED = (
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.time=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = CONSOLE
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} - %m%n
"""
CONFIGURATION = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
jobmanager.scheduler: adaptive
jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout: 0s
jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling: 0s
jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout: 0s
jobmanager.adaptive-scheduler.rescale-trigger.max-delay: 3s
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 1000
restart-strategy.fixed-delay.delay: 0s
heartbeat.interval: 500
heartbeat.timeout: 3000
heartbeat.rpc-failure-threshold: 1
execution.checkpointing.interval: 1s
execution.checkpointing.savepoint-dir: file://{folder}/savepoints
io.tmp.dirs: {folder}/tmp
taskmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}
taskmanager.memory.task.heap.size: 384m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.managed.size: 16m
taskmanager.memory.network.min: 32m
taskmanager.memory.network.max: 32m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.jvm-metaspace.size: 192m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
"""
PLACES = ("here", "there")
"""Two TaskManagers with room for all stages each: every stage begins on the first, the second is the spare."""


class Flink(Peer):
    def __init__(self, folder: Path, kafka: str, _zookeeper: str) -> None:
        self._programs = Programs(folder)
        self._kafka = kafka
        self._rest = httpx.Client(timeout=60)
        self._jobs: dict[str, str] = {}

    def start(self) -> None:
        folder, jars = self._programs.folder, java.fetched("flink")
        rpc, rest = free_ports(2)
        self._rest.base_url = httpx.URL(f"http://127.0.0.1:{rest}")
        (folder / "tmp").mkdir()
        (folder / "config.yaml").write_text(
            CONFIGURATION.format(rpc=rpc, rest=rest, folder=folder, slots=PARALLELISM * len(STAGES))
        )
        (folder / "log4j.properties").write_text(LOG4J)
        self._java = [
            str(java.home() / "bin" / "java"),
            *OPENED,
            f"-Dlog4j.configurationFile={folder}/log4j.properties",
            "-cp",
            f"{jars}/*",
        ]
        self._program(
            "jobmanager", "-Xmx384m", "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        )
        self._taskmanager(PLACES[0])
        until("Flink's first TaskManager is there", lambda: self._taskmanagers() == 1)
        with java.compiled("FlinkPass", jars, folder).open("rb") as jar:
            uploaded = self._asked(
                "POST",
                "/jars/upload",
                files={"jarfile": ("FlinkPass.jar", jar, "application/x-java-archive")},
            )
        self._jar = Path(uploaded["filename"]).name
        for stage in STAGES:
            self._run(stage)
        self.ready()
        self._taskmanager(PLACES[1])
        until("Flink's second TaskManager is there", lambda: self._taskmanagers() == len(PLACES))

    def _program(self, name: str, memory: str, main: str, *more: str) -> None:
        self._programs.start(
            name,
            [
                *self._java[:1],
                memory,
                *self._java[1:],
                main,
                "--configDir",
                str(self._programs.folder),
                *more,
            ],
        )

    def _taskmanager(self, name: str) -> None:
        self._program(
            name,
            "-Xmx512m",
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            "-D",
            f"taskmanager.resource-id={name}",
        )

    def _asked(self, method: str, path: str, **more: Any) -> Any:
        answer = self._rest.request(method, path, **more)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()

    def _taskmanagers(self) -> int:
        """Count them; none while the JobManager is not up to answering."""
        self._programs.check()
        try:
            answer = self._rest.get("/overview")
        except httpx.TransportError:
            return 0
        return int(answer.json()["taskmanagers"]) if answer.is_success else 0

    def _run(self, stage: str, **more: str) -> None:
        wanted = {
            "entryClass": "FlinkPass",
            "programArgsList": [stage, *STAGES[stage], self._kafka],
            "parallelism": PARALLELISM,
            **more,
        }
        self._jobs[stage] = self._asked("POST", f"/jars/{self._jar}/run", json=wanted)["jobid"]

    def ready(self) -> None:
        def run() -> bool:
            self._programs.check()
            jobs = {job["jid"]: job for job in self._asked("GET", "/jobs/overview")["jobs"]}
            wanted = [jobs[job] for job in self._jobs.values()]
            return all(
                job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"]
                for job in wanted
            )

        until("all of Flink's jobs run", run)

    def moves(self) -> Mapping[str, Deed]:
        return {
            "stop with savepoint": self._by_savepoint,
            "rescale to 4": lambda: self._rescale(4),
            "rescale to 2": lambda: self._rescale(2),
        }

    def _by_savepoint(self) -> float:
        begun = time.time()
        asked = self._asked("POST", f"/jobs/{self._jobs['second']}/stop", json={"drain": False})["request-id"]
        while (said := self._asked("GET", f"/jobs/{self._jobs['second']}/savepoints/{asked}"))["status"][
            "id"
        ] != "COMPLETED":
            time.sleep(0.01)
        self._run("second", savepointPath=said["operation"]["location"])
        self.ready()
        return begun

    def _rescale(self, tasks: int) -> float:
        job = f"/jobs/{self._jobs['second']}"
        vertices = [vertex["id"] for vertex in self._asked("GET", job)["vertices"]]
        wanted = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": tasks}} for vertex in vertices}
        begun = time.time()
        self._asked("PUT", f"{job}/resource-requirements", json=wanted)
        until(
            f"the job runs {tasks} times",
            lambda: {each["parallelism"] for each in self._asked("GET", job)["vertices"]} == {tasks},
        )
        self.ready()
        return begun

    def kills(self) -> Mapping[str, Deed]:
        return {"TaskManager": self._kill}

    def _kill(self) -> float:
        vertex = self._asked("GET", f"/jobs/{self._jobs['second']}")["vertices"][0]["id"]
        at = self._asked("GET", f"/jobs/{self._jobs['second']}/vertices/{vertex}")["subtasks"][0][
            "taskmanager-id"
        ]
        begun = time.time()
        self._programs.kill(at)
        until("Flink misses its TaskManager", lambda: self._taskmanagers() < len(PLACES))
        self.ready()
        return begun

    def stop(self) -> None:
        self._rest.close()
        super().stop()
