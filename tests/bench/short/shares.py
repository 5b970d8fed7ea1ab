"""The shares of the processors that each part uses while a rate is offered."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from tests.bench.peers.system import System

PARTS = {
    "StandaloneSessionClusterEntrypoint": "JobManager",
    "TaskManagerRunner": "TaskManager",
    "CoarseGrainedExecutorBackend": "executors",
    "deploy.worker.Worker": "Workers",
    "SparkSubmit": "drivers' JVMs",
    "PythonGatewayServer": "drivers' JVMs",
    "sluice.driver": "drivers' Python",
    "kafka.Kafka": "Kafka",
    "postgres": "PostgreSQL",
}
"""A word of a command line → the name of the part."""
BENCH, OTHERS = "load and meter", "others"
NEARLY_ALL = 0.9
"""The part of the processors that must be busy for them to be the limit."""


def part(command: Iterable[str]) -> str:
    """Return the part that a command line belongs to."""
    words = " ".join(command)
    return next((name for word, name in PARTS.items() if word in words), OTHERS)


def by_part(processes: Iterable[psutil.Process]) -> Counter[str]:
    """Return the processor seconds of the processes until now, by part."""
    parts: Counter[str] = Counter()
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            parts[part(process.cmdline())] += times.user + times.system
    return parts


class Times(NamedTuple):
    """Processor seconds until a moment, by part."""

    at: float
    parts: Mapping[str, float]
    system_seconds: float
    """Those of the system alone."""
    busy: float
    """Those of the whole machine."""

    @classmethod
    def now(cls, system: System, home: Path) -> Self:
        """Return the times of the system, of the services in `home`, and of this process."""
        services = psutil.Process(int((home / "run" / "supervisord.pid").read_text()))
        parts = by_part(system.processes())
        system_seconds = parts.total()
        parts.update(by_part(services.children(recursive=True)))
        own = os.times()
        parts[BENCH] = own.user + own.system + own.children_user + own.children_system
        machine = psutil.cpu_times()
        busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq
        return cls(time.monotonic(), parts, system_seconds, busy)

    def shares(self, later: "Times") -> dict[str, float]:
        """Return how many processors each part used until `later`.

        `all` is the whole machine, and `other programs` what neither bench nor system used of it.
        """
        seconds = later.at - self.at
        used = {name: (later.parts[name] - self.parts.get(name, 0.0)) / seconds for name in later.parts}
        whole = (later.busy - self.busy) / seconds
        used |= {"other programs": whole - sum(used.values()), "all": whole}
        return {name: round(value, 2) for name, value in used.items() if value >= 0.005}


def bound(shares: Mapping[str, float], processors: int) -> str:
    """Return what bounds the rate, as a sentence with its evidence."""
    parts = sorted((value, name) for name, value in shares.items() if name != "all")
    listed = ", ".join(f"{name} {value:.2f}" for value, name in reversed(parts[-4:]))
    busy = shares.get("all", 0.0)
    verdict = "processors" if busy >= NEARLY_ALL * processors else "not the processors"
    return f"{verdict}: {busy:.2f} of {processors} are busy ({listed})"
