"""Watch the heartbeats of a host's units, and kill processes that hang (decision 46).

A driver increments two counters in its heartbeat file: the Python counter, and the JVM counter
while the JVM answers Python. The JVMs of a slot have no heartbeat file: a JVM of a slot counts as
hung only if all its threads are stopped. The agent's loop calls this module while it sleeps.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from sluice_ops.agent.host.processes import Threads, children, is_stopped, kill_all, threads
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit, KillForFault
from sluice_ops.agent.watch.liveness import LOOK_SECONDS, Activity, Silence, next_silence
from sluice_ops.model.assignment import HUNG_SINCE, UnitKind
from sluice_ops.model.ids import UnitId

log = structlog.get_logger()

JAVA = "java"
WORKER, EXECUTOR = "Worker", "executor"
NO_BEAT = 0
"""The counter of a process without heartbeats: only the state of its threads counts."""


@dataclass(frozen=True)
class WatchedProcess:
    """A process of a unit that the agent watches."""

    unit: UnitId
    kind: UnitKind
    name: str
    """The name of the process in messages."""
    pid: int


class Heartbeats:
    """The state of each watched process at the last check."""

    def __init__(self, process_control: ProcessControl) -> None:
        self._process_control = process_control
        self._looked: float | None = None
        self._silences: dict[WatchedProcess, Silence] = {}
        self._threads: dict[WatchedProcess, Threads] = {}
        self.ended: dict[UnitKind, int] = dict.fromkeys(UnitKind, 0)
        """How many hanging units and executors this agent has killed."""

    def check(self) -> bool:
        """Check all units, at most every 0.25 s, and kill hanging processes.

        Return whether a process was killed.
        """
        now = time.monotonic()
        passed = 0.0 if self._looked is None else now - self._looked
        if self._looked is not None and passed < LOOK_SECONDS / 2:
            return False
        self._looked = now
        beats = dict(self._beats(self._process_control.units))
        # Only the threads of silent processes are read: usually none are silent.
        silent = [
            process
            for process, beat in beats.items()
            if process in self._silences and beat == self._silences[process].beat
        ]
        silent = [process for process in silent if process.kind is UnitKind.DRIVER or is_stopped(process.pid)]
        thread_states = {process: state for process in silent if (state := threads(process.pid)) is not None}
        activities = {
            process: _activity(self._threads.get(process), state) for process, state in thread_states.items()
        }
        self._threads = thread_states
        silences = {
            process: next_silence(
                self._silences.get(process), beat, activities.get(process, Activity.AT_WORK), passed
            )
            for process, beat in beats.items()
        }
        self._silences = silences
        hung = {
            process: activity
            for process, silence in silences.items()
            if (activity := _hung(process, silence)) is not None
        }
        for process, activity in hung.items():
            self._end(process, activity, silences[process].seconds)
        return bool(hung)

    def _beats(self, units: Iterable[FoundUnit]) -> Iterator[tuple[WatchedProcess, int]]:
        """Yield each watched process and its counter."""
        for found_unit in units:
            unit = found_unit.unit
            if found_unit.pid is None or found_unit.stopping_at is not None:
                continue
            javas = [
                pid
                for pid, name in children(
                    found_unit.pid, self._process_control.members.get(unit.id, ())
                ).items()
                if name == JAVA
            ]
            if unit.kind is UnitKind.SLOT:
                yield WatchedProcess(unit.id, unit.kind, WORKER, found_unit.pid), NO_BEAT
                yield from ((WatchedProcess(unit.id, unit.kind, EXECUTOR, pid), NO_BEAT) for pid in javas)
            elif (counters := _counters(self._process_control.heartbeat(unit.id))) is not None:
                yield WatchedProcess(unit.id, unit.kind, "driver's Python", found_unit.pid), counters[0]
                for pid in javas:
                    yield WatchedProcess(unit.id, unit.kind, "driver's JVM", pid), counters[1]

    def _end(self, process: WatchedProcess, activity: Activity, seconds: float) -> None:
        """Kill the whole unit of a hanging driver or Worker.

        Of a hanging executor, kill only the executor: its Worker starts another executor.
        """
        since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
        reason = f"{HUNG_SINCE} {since}: its {process.name} {activity}; its agent ended it"
        log.warning(
            "process hangs; the agent kills it",
            unit=process.unit,
            process=process.name,
            pid=process.pid,
            cause=activity,
            silent_seconds=round(seconds, 1),
        )
        self.ended[process.kind] += 1
        self._silences.pop(process)
        if process.name == EXECUTOR:
            kill_all({process.pid})
        else:
            self._process_control.do(KillForFault(process.unit, reason))


def _counters(file: Path) -> tuple[int, int] | None:
    """Return a driver's Python and JVM counters; None before the first heartbeat, or without a
    readable file.
    """
    try:
        python, jvm = map(int, file.read_text().split())
    except (OSError, ValueError):
        return None
    return python, jvm


def _hung(process: WatchedProcess, silence: Silence) -> Activity | None:
    """Return how a process hangs; None if it does not.

    A process of a slot has no heartbeats, and a healthy Worker idles for seconds. So a process of a
    slot hangs only if it is stopped.
    """
    activity = silence.hung()
    return activity if process.kind is UnitKind.DRIVER or activity is Activity.STOPPED else None


def _activity(before: Threads | None, now: Threads) -> Activity:
    if now.states <= frozenset("Tt"):
        return Activity.STOPPED
    idle = now.states <= frozenset("STtI")
    return Activity.STILL if before is not None and idle and before.ran == now.ran else Activity.AT_WORK
