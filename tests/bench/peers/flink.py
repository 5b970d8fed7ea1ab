"""Flink: jobs on a session cluster, by default one for each stage, without linger in its producers,
and with an adaptive scheduler that acts at once.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.bench.peers import java
from tests.bench.peers.system import Deed, Peer, Programs
from tests.lab import free_ports, until

STAGES = {"first": ("raw", "one"), "second": ("one", "two"), "third": ("two", "three")}
PARALLELISM = 2
"""The parallelism of each job: one task for each processor."""
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
pipeline.object-reuse: true
execution.checkpointing.interval: 1s
execution.checkpointing.savepoint-dir: file://{folder}/savepoints
io.tmp.dirs: {folder}/tmp
taskmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}
taskmanager.memory.task.heap.size: {heap}m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.managed.size: {managed}m
taskmanager.memory.network.min: 32m
taskmanager.memory.network.max: 32m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.jvm-metaspace.size: 192m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
"""
PLACES = ("here", "there")
"""Two TaskManagers with room for all stages: every stage starts on the first, and the second is the
spare.
"""


class Job(NamedTuple):
    """A job: its main class next to this file, and its arguments."""

    main: str
    arguments: Sequence[str]


class Memory(NamedTuple):
    """Unit: MiB."""

    jobmanager: int = 384
    task: int = 384
    """A TaskManager's heap for tasks."""
    managed: int = 16
    """A TaskManager's memory that Flink's own operators divide: those of SQL use it."""


FOR_BYTES = Memory()
FRAMEWORK_HEAP = 128


def passing(kafka: str, stages: Mapping[str, tuple[str, str]] = STAGES) -> dict[str, Job]:
    """Return the jobs that pass bytes on, one for each stage."""
    return {
        name: Job("FlinkPass", (name, source, target, kafka)) for name, (source, target) in stages.items()
    }


class Flink(Peer):
    def __init__(
        self,
        folder: Path,
        jobs: Mapping[str, Job],
        memory: Memory = FOR_BYTES,
        places: Sequence[str] = PLACES,
    ) -> None:
        self._programs = Programs(folder)
        self._specs = jobs
        self._memory = memory
        self._places = places
        self._rest = httpx.Client(timeout=60)
        self._jars: dict[str, str] = {}
        self._jobs: dict[str, str] = {}

    def start(self) -> None:
        folder, jars = self._programs.folder, java.fetched("flink")
        rpc, rest = free_ports(2)
        self._rest.base_url = httpx.URL(f"http://127.0.0.1:{rest}")
        (folder / "tmp").mkdir()
        (folder / "config.yaml").write_text(
            CONFIGURATION.format(
                rpc=rpc,
                rest=rest,
                folder=folder,
                slots=PARALLELISM * len(self._specs),
                heap=self._memory.task,
                managed=self._memory.managed,
            )
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
            "jobmanager",
            f"-Xmx{self._memory.jobmanager}m",
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
        )
        self._taskmanager(self._places[0])
        until("Flink's first TaskManager is registered", lambda: self._taskmanagers() == 1)
        for main in {job.main for job in self._specs.values()}:
            with java.compiled(main, jars, folder).open("rb") as jar:
                uploaded = self._request(
                    "POST",
                    "/jars/upload",
                    files={"jarfile": (f"{main}.jar", jar, "application/x-java-archive")},
                )
            self._jars[main] = Path(uploaded["filename"]).name
        for name in self._specs:
            self._run(name)
        self.ready()
        for place in self._places[1:]:
            self._taskmanager(place)
        until(
            "all of Flink's TaskManagers are registered",
            lambda: self._taskmanagers() == len(self._places),
        )

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
            f"-Xmx{self._memory.task + FRAMEWORK_HEAP}m",
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            "-D",
            f"taskmanager.resource-id={name}",
        )

    def _request(self, method: str, path: str, **more: Any) -> Any:
        answer = self._rest.request(method, path, **more)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()

    def _taskmanagers(self) -> int:
        """Return the number of TaskManagers, or 0 while the JobManager does not answer."""
        self._programs.check()
        try:
            answer = self._rest.get("/overview")
        except httpx.TransportError:
            return 0
        return int(answer.json()["taskmanagers"]) if answer.is_success else 0

    def _run(self, name: str, **more: str) -> None:
        job = self._specs[name]
        job_settings = {
            "entryClass": job.main,
            "programArgsList": list(job.arguments),
            "parallelism": PARALLELISM,
            **more,
        }
        self._jobs[name] = self._request("POST", f"/jars/{self._jars[job.main]}/run", json=job_settings)[
            "jobid"
        ]

    def ready(self) -> None:
        def all_running() -> bool:
            self._programs.check()
            jobs = {job["jid"]: job for job in self._request("GET", "/jobs/overview")["jobs"]}
            our_jobs = [jobs[job] for job in self._jobs.values()]
            return all(
                job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"]
                for job in our_jobs
            )

        until("all of Flink's jobs run", all_running)

    def moves(self) -> Mapping[str, Deed]:
        return {
            "stop with savepoint": self._by_savepoint,
            "rescale to 4": lambda: self._rescale(4),
            "rescale to 2": lambda: self._rescale(2),
        }

    def _by_savepoint(self) -> float:
        started = time.time()
        request_id = self._request("POST", f"/jobs/{self._jobs['second']}/stop", json={"drain": False})[
            "request-id"
        ]
        while (savepoint := self._request("GET", f"/jobs/{self._jobs['second']}/savepoints/{request_id}"))[
            "status"
        ]["id"] != "COMPLETED":
            time.sleep(0.01)
        self._run("second", savepointPath=savepoint["operation"]["location"])
        self.ready()
        return started

    def _rescale(self, tasks: int) -> float:
        job = f"/jobs/{self._jobs['second']}"
        vertices = [vertex["id"] for vertex in self._request("GET", job)["vertices"]]
        requirements = {
            vertex: {"parallelism": {"lowerBound": 1, "upperBound": tasks}} for vertex in vertices
        }
        started = time.time()
        self._request("PUT", f"{job}/resource-requirements", json=requirements)
        until(
            f"the job runs {tasks} times",
            lambda: {vertex["parallelism"] for vertex in self._request("GET", job)["vertices"]} == {tasks},
        )
        self.ready()
        return started

    def kills(self) -> Mapping[str, Deed]:
        return {"TaskManager": self._kill}

    def _kill(self) -> float:
        vertex = self._request("GET", f"/jobs/{self._jobs['second']}")["vertices"][0]["id"]
        taskmanager = self._request("GET", f"/jobs/{self._jobs['second']}/vertices/{vertex}")["subtasks"][0][
            "taskmanager-id"
        ]
        started = time.time()
        self._programs.kill(taskmanager)
        until("Flink has lost its TaskManager", lambda: self._taskmanagers() < len(self._places))
        self.ready()
        return started

    def stop(self) -> None:
        self._rest.close()
        super().stop()
