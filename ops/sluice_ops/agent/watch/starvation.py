"""Decide whether a unit is starved of processor time or needs little, and whether its host is busy.

Pure. `neighbours` calls this module.

A unit is starved by its neighbours if all of this holds: its threads wait for a processor longer
than they run, the unit gets less than its quantum, and no processor that it may use is idle. So a
unit is not starved that needs more than its quantum, does almost nothing, or whose own threads
delay each other briefly.
"""

from dataclasses import dataclass, replace

from sluice_ops.agent.host.processes import CpuTime

WINDOW_SECONDS = 10.0
"""The shortest window of one measurement."""
TURN_SECONDS = 60.0
"""How long all windows have to agree before a verdict turns: a peak is no starvation, and a lull
does not end it.
"""
WAITED = 0.5
"""The part of their runnable time that the threads of a starved unit wait."""
PROMISED = 0.9
"""A unit with this part of its quantum gets enough."""
LITTLE = 0.1
"""A unit that needs at most this part of its quantum loses nothing by waiting."""
IDLE = 0.1
"""If the unit's processors are idle for this part of the time, its threads wait for each other.

A host whose processors are idle for less is busy.
"""


BUSY_STEP = 0.1
"""The busy part of a host is told in these steps."""
MODEST = 0.3
"""A unit whose threads ask for at most this part of its quantum waits for something else."""


@dataclass(frozen=True)
class Verdict:
    """Whether one unit is starved or modest, or the host is busy."""

    since: float | None = None
    """Since when it is so, by the wall clock; None if it is not."""
    turning: float | None = None
    """Since when all windows say the opposite, on the monotonic clock."""


def is_starved(spent: CpuTime, seconds: float, cpu: float, idle: float) -> bool:
    """Tell whether a unit was starved in a window of `seconds`.

    `cpu` is the number of cores that the unit is promised. `idle` is the part of the window in
    which the unit's processors were idle.
    """
    runnable = spent.ran + spent.waited
    promised = cpu * seconds
    return (
        runnable > LITTLE * promised
        and spent.ran < PROMISED * promised
        and spent.waited >= WAITED * runnable
        and is_busy(idle)
    )


def is_modest(spent: CpuTime, seconds: float, cpu: float) -> bool:
    """Tell whether a unit asked for little processor time in a window of `seconds`.

    `cpu` are the cores of its quantum.
    """
    return spent.ran + spent.waited <= MODEST * cpu * seconds


def is_busy(idle: float) -> bool:
    """Tell whether a host was busy in a window: `idle` is the idle part of its processors' time."""
    return idle < IDLE


def next_busy_part(before: float | None, busy: float) -> float:
    """Return the busy part of a host to tell, after the part `before`.

    A part that has changed by less than a step is not told again, because each telling is a write
    to ZooKeeper.
    """
    return round(busy, 1) if before is None or abs(busy - before) >= BUSY_STEP else before


def next_verdict(before: Verdict, *, holds: bool, begun: float, now: float, wall: float) -> Verdict:
    """Return the verdict after one more window, in which it held or not.

    `begun` and `now` are the window's ends on the monotonic clock; `wall` is `now` by the wall
    clock.
    """
    if holds == (before.since is not None):
        return replace(before, turning=None)
    turning = begun if before.turning is None else before.turning
    if now - turning < TURN_SECONDS:
        return replace(before, turning=turning)
    return Verdict(since=wall if holds else None)
