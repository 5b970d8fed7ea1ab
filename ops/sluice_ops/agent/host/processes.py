"""Processes as the kernel shows them, told apart by when they started: a recycled pid is never mistaken for an older process."""

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
NANOSECONDS = 1e-9


@dataclass(frozen=True)
class CpuTime:
    """What the threads of a unit have done, all together. Unit: seconds."""

    ran: float
    waited: float
    """They could run, and no processor took them."""


@dataclass(frozen=True)
class Process:
    """One process, for as long as it lives."""

    pid: int
    started: int
    """Clock ticks between the machine's boot and its start."""

    @property
    def alive(self) -> bool:
        """Whether this very process runs; one that has ended and waits to be reaped does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] not in "ZX" and int(stat[19]) == self.started

    def send(self, number: int) -> None:
        """Send a signal, if it is still there."""
        if self.alive:
            signal_all({self.pid}, number)


def live_process(pid: int) -> Process | None:
    """Return the process that has this pid now."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else Process(pid, int(stat[19]))


def signal_all(pids: set[int] | frozenset[int], number: int) -> None:
    """Send a signal to each of `pids` that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill_all(pids: set[int] | frozenset[int]) -> None:
    """Kill each of `pids`."""
    signal_all(pids, signal.SIGKILL)


def find_processes(session: int | None, marks: frozenset[str]) -> frozenset[int]:
    """Return the processes of a session that carry `marks` in their environment; of any session where it is not known."""
    members = set()
    carried = {mark.encode() for mark in marks}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        stat = _stat(int(entry.name))
        if stat is None or stat[0] in "ZX" or session not in {None, int(stat[3])}:
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if carried.issubset(environment.split(b"\0")):
            members.add(int(entry.name))
    return frozenset(members)


def boot_id() -> str:
    """Tell this boot of the machine from every other."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def thread_cpu_times(pids: Iterable[int]) -> dict[int, CpuTime]:
    """Return what each thread of these processes has done since it began, as far as the kernel counts it."""
    found: dict[int, CpuTime] = {}
    for pid in pids:
        with suppress(OSError):
            for thread in (PROC / str(pid) / "task").iterdir():
                with suppress(OSError):
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    found[int(thread.name)] = CpuTime(int(ran) * NANOSECONDS, int(waited) * NANOSECONDS)
    return found


@dataclass(frozen=True)
class Threads:
    """What the kernel shows of a process's threads at one moment."""

    states: frozenset[str]
    """Letters of /proc/<pid>/stat: R runs or would, D waits for a disk, S sleeps, T is stopped, t is traced."""
    ran: Mapping[int, float]
    """For how long each has run. Unit: seconds."""


def threads(pid: int) -> Threads | None:
    """Return what a process's threads do; None where it has ended."""
    states = set()
    try:
        for thread in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                states.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    except OSError:
        return None
    return (
        Threads(frozenset(states), {number: spent.ran for number, spent in thread_cpu_times([pid]).items()})
        if states
        else None
    )


def is_stopped(pid: int) -> bool:
    """Tell whether the process's first thread is stopped, as all are by SIGSTOP or by a debugger."""
    stat = _stat(pid)
    return stat is not None and stat[0] in "Tt"


def children(parent: int, pids: Iterable[int]) -> dict[int, str]:
    """Return those of `pids` that a process has started, and what the kernel calls them."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            name, _, rest = (PROC / str(pid) / "stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == parent:
                found[pid] = name
    return found


def idle_times() -> dict[int, tuple[float, float]]:
    """Return for how long each processor was idle, and how long that is altogether. Unit: clock ticks."""
    lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
    processors = [
        (name.removeprefix("cpu"), [int(number) for number in numbers[:8]])
        for name, *numbers in lines
        if name.startswith("cpu")
    ]
    # what guests take is in the first eight
    return {
        int(number): (float(ticks[3] + ticks[4]), float(sum(ticks))) for number, ticks in processors if number
    }


def allowed_processors(pids: Iterable[int]) -> frozenset[int]:
    """Return the processors that any of these processes may use."""
    found: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            found |= os.sched_getaffinity(pid)
    return frozenset(found)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on (the name before it may hold anything)."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
