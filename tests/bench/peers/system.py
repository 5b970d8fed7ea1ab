"""The interface of a measured system, and the programs of a system."""

import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

import psutil
from confluent_kafka import Message

Deed = Callable[[], float]
"""Does something to a system; returns when it took effect (seconds since 1970), because the
preparation before disturbs less.
"""


class System(Protocol):
    """A chain of three stages from `raw` to `three` that passes records on unchanged."""

    def start(self) -> None:
        """Start the system; return when it can accept records."""

    def ready(self) -> None:
        """Return when all stages run, also after a deed."""

    def processes(self) -> list[psutil.Process]:
        """Return the processes that count for processor time; after `stop`, none is left."""

    def moves(self) -> Mapping[str, Deed]:
        """Return the ways to move the middle stage."""

    def kills(self) -> Mapping[str, Deed]:
        """Return the ways to kill a part with -9."""

    def reader(self) -> Callable[[Message], bool]:
        """Return a function that tells new records from replays; for a system without replays it
        always returns True.
        """

    def stop(self) -> None:
        """End every process."""


def everything_is_new(_message: Message) -> bool:
    return True


class Programs:
    """Processes whose command lines name one folder, so that grandchildren are found too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, command: list[str], stdin: int | None = None) -> "subprocess.Popen[str]":
        with self.log(name).open("w") as log:
            self._started[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=stdin, stdout=log, stderr=log, text=True
            )
        return self._started[name]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def input(self, name: str) -> IO[str]:
        stream = self._started[name].stdin
        assert stream is not None
        return stream

    def check(self) -> None:
        """Fail if a process has ended by itself."""
        for name, process in self._started.items():
            assert process.poll() is None, f"{name} has ended: {self.log(name).read_text()[-3000:]}"

    def kill(self, name: str) -> None:
        process = self._started.pop(name)
        process.kill()
        process.wait()

    def all(self) -> list[psutil.Process]:
        found_processes = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if any(f"{self.folder}/" in word for word in process.cmdline()):
                    found_processes.append(process)
        return found_processes

    def stop(self) -> None:
        while left := self.all():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)
        for process in self._started.values():
            process.communicate()


class Peer:
    """The common part of every other system: it consists of programs, and has no replays."""

    _programs: Programs

    def reader(self) -> Callable[[Message], bool]:
        return everything_is_new

    def processes(self) -> list[psutil.Process]:
        return self._programs.all()

    def stop(self) -> None:
        self._programs.stop()


def processor_seconds(system: System) -> float:
    """Return the processor seconds that its processes have used until now."""
    total = 0.0
    for process in system.processes():
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total
