"""The heartbeats of a host's units, and the end of those that hang (decision record 0046). Called by the agent's loop between its rounds.

A driver renews two counters in the file that its environment names: of its Python, and of its JVM as far as that answers Python.
The JVMs of a slot have no such file; of them only one whose threads are all stopped counts as hung.
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
"""Of a process without a heartbeat of its own: only what the kernel shows of it counts."""


@dataclass(frozen=True)
class Part:
    """A process of a unit that is watched."""

    unit: UnitId
    kind: UnitKind
    name: str
    """What people call it."""
    pid: int


class Heartbeats:
    """What was seen of each process at the last look."""

    def __init__(self, process_control: ProcessControl) -> None:
        """Watch the units that these find."""
        self._process_control = process_control
        self._looked: float | None = None
        self._silences: dict[Part, Silence] = {}
        self._threads: dict[Part, Threads] = {}
        self.ended: dict[UnitKind, int] = dict.fromkeys(UnitKind, 0)
        """How many units, or executors in them, this agent has ended because they hung."""

    def look(self) -> bool:
        """Look at all units, unless that was done just now, and end what hangs; return whether anything was ended."""
        now = time.monotonic()
        passed = 0.0 if self._looked is None else now - self._looked
        if self._looked is not None and passed < LOOK_SECONDS / 2:
            return False
        self._looked = now
        beats = dict(self._beats(self._process_control.found))
        # threads are read only of processes that were silent: usually of none
        silent = [
            part
            for part, beat in beats.items()
            if part in self._silences and beat == self._silences[part].beat
        ]
        silent = [part for part in silent if part.kind is UnitKind.DRIVER or is_stopped(part.pid)]
        seen = {part: shown for part in silent if (shown := threads(part.pid)) is not None}
        standings = {part: _standing(self._threads.get(part), shown) for part, shown in seen.items()}
        self._threads = seen
        at_work = Activity.AT_WORK
        silences = {
            part: next_silence(self._silences.get(part), beat, standings.get(part, at_work), passed)
            for part, beat in beats.items()
        }
        self._silences = silences
        hung = {part: how for part, silence in silences.items() if (how := _hung(part, silence)) is not None}
        for part, how in hung.items():
            self._end(part, how, silences[part].seconds)
        return bool(hung)

    def _beats(self, found: Iterable[FoundUnit]) -> Iterator[tuple[Part, int]]:
        for found_unit in found:
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
                yield Part(unit.id, unit.kind, WORKER, found_unit.pid), NO_BEAT
                yield from ((Part(unit.id, unit.kind, EXECUTOR, pid), NO_BEAT) for pid in javas)
            elif (counters := _counters(self._process_control.heartbeat(unit.id))) is not None:
                yield Part(unit.id, unit.kind, "driver's Python", found_unit.pid), counters[0]
                yield from ((Part(unit.id, unit.kind, "driver's JVM", pid), counters[1]) for pid in javas)

    def _end(self, part: Part, how: Activity, seconds: float) -> None:
        """End a driver or a Worker with its unit; an executor alone, for its Worker starts another one."""
        since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
        why = f"{HUNG_SINCE} {since}: its {part.name} {how}; its agent ended it"
        log.warning(
            "ends what hangs",
            unit=part.unit,
            process=part.pid,
            part=part.name,
            how=how,
            silent_seconds=round(seconds, 1),
        )
        self.ended[part.kind] += 1
        self._silences.pop(part)
        if part.name == EXECUTOR:
            kill_all({part.pid})
        else:
            self._process_control.do(KillForFault(part.unit, why))


def _counters(file: Path) -> tuple[int, int] | None:
    """Return a driver's counters; None where it has not begun to count, or does no more."""
    try:
        python, jvm = map(int, file.read_text().split())
    except (OSError, ValueError):
        return None
    return python, jvm


def _hung(part: Part, silence: Silence) -> Activity | None:
    """Tell how a process hangs. One without a heartbeat has always been silent, and a Worker does nothing for seconds."""
    how = silence.hung()
    return how if part.kind is UnitKind.DRIVER or how is Activity.STOPPED else None


def _standing(before: Threads | None, now: Threads) -> Activity:
    if now.states <= frozenset("Tt"):
        return Activity.STOPPED
    idle = now.states <= frozenset("STtI")
    return Activity.STILL if before is not None and idle and before.ran == now.ran else Activity.AT_WORK
