"""Measures how much processor time a unit gets beside its neighbours; `starvation` judges it. Called by the agent's loop."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from sluice_ops.agent.host.processes import CpuTime, allowed_processors, idle_times, thread_cpu_times
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit
from sluice_ops.agent.watch.starvation import WINDOW_SECONDS, Verdict, is_starved, next_verdict
from sluice_ops.model.ids import UnitId

log = structlog.get_logger()


@dataclass(frozen=True)
class _Look:
    """The kernel's counters at one moment."""

    at: float
    idle: Mapping[int, tuple[float, float]]
    """Of each processor, and all the time that it counted."""
    threads: Mapping[UnitId, Mapping[int, CpuTime]]


class Neighbours:
    """What each unit had of the processors since the last look, and which units are starved."""

    def __init__(self, process_control: ProcessControl) -> None:
        """Look at the units that these find."""
        self._process_control = process_control
        self._last: _Look | None = None
        self._verdicts: dict[UnitId, Verdict] = {}
        self.waited: dict[UnitId, float] = {}
        """How long the threads of each unit have waited since this agent has known it. Unit: seconds."""

    @property
    def starved(self) -> dict[UnitId, float]:
        """Since when each starved unit is."""
        return {unit: verdict.since for unit, verdict in self._verdicts.items() if verdict.since is not None}

    def look(self, found: Iterable[FoundUnit]) -> None:
        """Measure, unless a window has just begun. Who prepares yields to others on purpose, and is not next_verdict."""
        now, last = time.monotonic(), self._last
        if last is not None and now - last.at < WINDOW_SECONDS:
            return
        alive = {found_unit.unit.id: found_unit.unit for found_unit in found if found_unit.alive}
        pids = {name: self._process_control.processes(name) for name in alive}
        self._last = look = _Look(now, idle_times(), {name: thread_cpu_times(pids[name]) for name in alive})
        if last is None:
            return
        seconds = now - last.at
        spent = {
            name: _between(last.threads[name], look.threads[name]) for name in alive if name in last.threads
        }
        self.waited = {
            name: self.waited.get(name, 0.0) + (spent[name].waited if name in spent else 0.0)
            for name in alive
        }
        verdicts: dict[UnitId, Verdict] = {}
        for name, each in spent.items():
            if alive[name].quiet:
                continue
            idle = _idle(last.idle, look.idle, allowed_processors(pids[name]))
            before, starved = (
                self._verdicts.get(name, Verdict()),
                is_starved(each, seconds, alive[name].quantum.cpu, idle),
            )
            verdicts[name] = next_verdict(before, starved=starved, begun=last.at, now=now, wall=time.time())
            _say(name, before, verdicts[name], each, seconds)
        self._verdicts = verdicts


def _between(before: Mapping[int, CpuTime], after: Mapping[int, CpuTime]) -> CpuTime:
    """Return what threads have done between two looks; those that have ended meanwhile are not counted."""
    new = CpuTime(0.0, 0.0)
    pairs = [(before.get(thread, new), spent) for thread, spent in after.items()]
    return CpuTime(
        ran=sum(max(0.0, now.ran - then.ran) for then, now in pairs),
        waited=sum(max(0.0, now.waited - then.waited) for then, now in pairs),
    )


def _idle(
    before: Mapping[int, tuple[float, float]],
    after: Mapping[int, tuple[float, float]],
    processors: frozenset[int],
) -> float:
    """Return for which part of the time between two looks processors were idle, all together."""
    there = [(before[each], after[each]) for each in processors if each in before and each in after]
    passed = sum(later[1] - earlier[1] for earlier, later in there)
    return sum(later[0] - earlier[0] for earlier, later in there) / passed if passed > 0 else 0.0


def _say(unit: UnitId, before: Verdict, after: Verdict, spent: CpuTime, seconds: float) -> None:
    if (before.since is None) is (after.since is None):
        return
    figures = {
        "ran_seconds": round(spent.ran, 2),
        "waited_seconds": round(spent.waited, 2),
        "of_seconds": round(seconds, 1),
    }
    if after.since is not None:
        log.warning(
            "a unit is starved: something else on this host takes the processor time of its quantum",
            unit=unit,
            **figures,
        )
    else:
        log.info("a unit is no longer starved", unit=unit, **figures)
