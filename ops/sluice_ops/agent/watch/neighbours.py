"""Measure the processor time that each unit gets beside its neighbours, and whether any is left.

`starvation` decides whether a unit is starved or modest, and whether the host is busy. The agent's
loop calls this module.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from sluice_ops.agent.host.processes import CpuTime, allowed_processors, idle_times, thread_cpu_times
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit
from sluice_ops.agent.watch.starvation import (
    TURN_SECONDS,
    WINDOW_SECONDS,
    Verdict,
    is_busy,
    is_modest,
    is_starved,
    next_busy_part,
    next_verdict,
)
from sluice_ops.model.ids import UnitId

log = structlog.get_logger()


@dataclass(frozen=True)
class _Counters:
    """The kernel's counters at one moment."""

    at: float
    idle: Mapping[int, tuple[float, float]]
    """For each processor its idle time and its total time. Unit: clock ticks."""
    threads: Mapping[UnitId, Mapping[int, CpuTime]]


class Neighbours:
    """The processor time of each unit since the last measurement, and the starved units."""

    def __init__(self, process_control: ProcessControl, cpu_share: float = 1.0) -> None:
        """Watch the units of `process_control`, which are promised `cpu_share` of their quantum."""
        self._process_control = process_control
        self._cpu_share = cpu_share
        self._last: _Counters | None = None
        self._starved: dict[UnitId, Verdict] = {}
        self._modest: dict[UnitId, Verdict] = {}
        self._busy = Verdict()
        self._minute_begun: _Counters | None = None
        self.busy_part: float | None = None
        """The busy part of the host's processors, in tenths, each minute anew; None at first."""
        self.waited: dict[UnitId, float] = {}
        """How long the threads of each unit have waited for a processor, since this agent first saw
        the unit. Unit: seconds.
        """

    @property
    def starved(self) -> dict[UnitId, float]:
        """The starved units, and the time since when, by the wall clock."""
        return _times(self._starved)

    @property
    def modest(self) -> dict[UnitId, float]:
        """The units that need little processor time, and the time since when."""
        return _times(self._modest)

    @property
    def busy_since(self) -> float | None:
        """Since when the processors of the host have had no time left; None if they have some."""
        return self._busy.since

    def measure(self, units: Iterable[FoundUnit]) -> None:
        """Measure all units, at most every 10 s.

        A quiet unit prepares and yields to others on purpose, so it is never starved.
        """
        now, last = time.monotonic(), self._last
        if last is not None and now - last.at < WINDOW_SECONDS:
            return
        alive = {found_unit.unit.id: found_unit.unit for found_unit in units if found_unit.alive}
        pids = {unit: self._process_control.processes(unit) for unit in alive}
        counters = _Counters(now, idle_times(), {unit: thread_cpu_times(pids[unit]) for unit in alive})
        self._last = counters
        if last is None:
            return
        seconds = now - last.at
        spent = {
            unit: _between(last.threads[unit], counters.threads[unit])
            for unit in alive
            if unit in last.threads
        }
        self.waited = {
            unit: self.waited.get(unit, 0.0) + (spent[unit].waited if unit in spent else 0.0)
            for unit in alive
        }
        usable = {unit: allowed_processors(pids[unit]) for unit in alive}
        starved: dict[UnitId, Verdict] = {}
        modest: dict[UnitId, Verdict] = {}
        turn = partial(next_verdict, begun=last.at, now=now, wall=time.time())
        for unit, cpu_time in spent.items():
            if alive[unit].quiet:
                continue
            idle = _idle(last.idle, counters.idle, usable[unit])
            before, cpu = self._starved.get(unit, Verdict()), alive[unit].quantum.cpu
            starved[unit] = turn(before, holds=is_starved(cpu_time, seconds, cpu * self._cpu_share, idle))
            modest[unit] = turn(self._modest.get(unit, Verdict()), holds=is_modest(cpu_time, seconds, cpu))
            _log_change(unit, before, starved[unit], cpu_time, seconds)
        self._starved, self._modest = starved, modest
        processors = frozenset[int]().union(*usable.values()) or allowed_processors([os.getpid()])
        busy = is_busy(_idle(last.idle, counters.idle, processors))
        self._busy = turn(self._busy, holds=busy)
        begun = self._minute_begun or last
        if self.busy_part is None or now - begun.at >= TURN_SECONDS:
            self.busy_part = next_busy_part(self.busy_part, 1 - _idle(begun.idle, counters.idle, processors))
            begun = counters
        self._minute_begun = begun


def _times(verdicts: Mapping[UnitId, Verdict]) -> dict[UnitId, float]:
    return {unit: verdict.since for unit, verdict in verdicts.items() if verdict.since is not None}


def _between(before: Mapping[int, CpuTime], after: Mapping[int, CpuTime]) -> CpuTime:
    """Return the sum of the threads' processor time between two measurements.

    Threads that ended in between are left out.
    """
    new = CpuTime(0.0, 0.0)
    pairs = [(before.get(thread, new), cpu_time) for thread, cpu_time in after.items()]
    return CpuTime(
        ran=sum(max(0.0, later.ran - earlier.ran) for earlier, later in pairs),
        waited=sum(max(0.0, later.waited - earlier.waited) for earlier, later in pairs),
    )


def _idle(
    before: Mapping[int, tuple[float, float]],
    after: Mapping[int, tuple[float, float]],
    processors: frozenset[int],
) -> float:
    """Return the part of the time between two measurements in which the processors were idle."""
    pairs = [
        (before[processor], after[processor])
        for processor in processors
        if processor in before and processor in after
    ]
    passed = sum(later[1] - earlier[1] for earlier, later in pairs)
    return sum(later[0] - earlier[0] for earlier, later in pairs) / passed if passed > 0 else 0.0


def _log_change(unit: UnitId, before: Verdict, after: Verdict, cpu_time: CpuTime, seconds: float) -> None:
    if (before.since is None) is (after.since is None):
        return
    figures = {
        "ran_seconds": round(cpu_time.ran, 2),
        "waited_seconds": round(cpu_time.waited, 2),
        "of_seconds": round(seconds, 1),
    }
    if after.since is not None:
        log.warning(
            "unit is starved: other processes of this host take the processor time of its quantum; "
            "find them with: top",
            unit=unit,
            **figures,
        )
    else:
        log.info("unit is no longer starved", unit=unit, **figures)
