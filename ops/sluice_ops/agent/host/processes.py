"""Read processes and threads from /proc.

A process is identified by pid and start time, so a reused pid never means the older process.
"""

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
    """Processor time of one thread, or of all threads of a unit. Unit: seconds."""

    ran: float
    waited: float
    """The time in which a thread could run but got no processor."""


@dataclass(frozen=True)
class Process:
    """One process, identified by pid and start time."""

    pid: int
    started: int
    """The start time, in clock ticks since the machine's boot."""

    @property
    def alive(self) -> bool:
        """Whether this process runs; a zombie does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] not in "ZX" and int(stat[19]) == self.started

    def send(self, number: int) -> None:
        """Send a signal to the process, if it is alive."""
        if self.alive:
            signal_all({self.pid}, number)


def live_process(pid: int) -> Process | None:
    """Return the process that has this pid now; None if there is none, or only a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else Process(pid, int(stat[19]))


def signal_all(pids: set[int] | frozenset[int], number: int) -> None:
    """Send a signal to each of `pids` that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill_all(pids: set[int] | frozenset[int]) -> None:
    """Send SIGKILL to each of `pids` that still exists."""
    signal_all(pids, signal.SIGKILL)


def find_processes(session: int | None, variables: frozenset[str]) -> frozenset[int]:
    """Return the pids of a session whose environment has all `variables` (`NAME=value`).

    Without a session, search all sessions. Zombies are left out.
    """
    members = set()
    wanted = {variable.encode() for variable in variables}
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
        if wanted.issubset(environment.split(b"\0")):
            members.add(int(entry.name))
    return frozenset(members)


def boot_id() -> str:
    """Return the kernel's id of this boot of the machine."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def thread_cpu_times(pids: Iterable[int]) -> dict[int, CpuTime]:
    """Return the processor time of each thread of these processes since its start.

    Threads without a counter in the kernel are left out.
    """
    times: dict[int, CpuTime] = {}
    for pid in pids:
        with suppress(OSError):
            for thread in (PROC / str(pid) / "task").iterdir():
                with suppress(OSError):
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    times[int(thread.name)] = CpuTime(int(ran) * NANOSECONDS, int(waited) * NANOSECONDS)
    return times


@dataclass(frozen=True)
class Threads:
    """The state of a process's threads at one moment."""

    states: frozenset[str]
    """Letters of /proc/<pid>/stat: R runs or waits for a processor, D waits for a disk, S sleeps, T
    is stopped, t is traced.
    """
    ran: Mapping[int, float]
    """How long each thread has run. Unit: seconds."""


def threads(pid: int) -> Threads | None:
    """Return the state of a process's threads; None if the process has ended."""
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
    """Tell whether the process's first thread is stopped.

    SIGSTOP and a debugger stop all threads.
    """
    stat = _stat(pid)
    return stat is not None and stat[0] in "Tt"


def children(parent: int, pids: Iterable[int]) -> dict[int, str]:
    """Return those of `pids` whose parent is `parent`, with their names in the kernel."""
    names = {}
    for pid in pids:
        with suppress(OSError):
            name, _, rest = (PROC / str(pid) / "stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[1]) == parent:
                names[pid] = name
    return names


def idle_times() -> dict[int, tuple[float, float]]:
    """Return the idle time and the total time of each processor. Unit: clock ticks."""
    lines = [line.split() for line in (PROC / "stat").read_text().splitlines()]
    processors = [
        (name.removeprefix("cpu"), [int(number) for number in numbers[:8]])
        for name, *numbers in lines
        if name.startswith("cpu")
    ]
    # The first eight numbers include the time of guests.
    return {
        int(number): (float(ticks[3] + ticks[4]), float(sum(ticks))) for number, ticks in processors if number
    }


def allowed_processors(pids: Iterable[int]) -> frozenset[int]:
    """Return the processors that any of these processes may use."""
    allowed: set[int] = set()
    for pid in pids:
        with suppress(OSError):
            allowed |= os.sched_getaffinity(pid)
    return frozenset(allowed)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None if there is no such process.

    The process name before the state may contain any character.
    """
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
