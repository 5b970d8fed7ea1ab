"""Decide when a process counts as hung, from missing heartbeats and the state of its threads.

Pure. Silence counts only while the agent watches. A suspended host or a stopped agent adds at most
1 s of silence. So a process that renews its heartbeat between any two checks is never killed,
even if clocks jump.
"""

from dataclasses import dataclass
from enum import StrEnum

LOOK_SECONDS = 0.5
"""The time between two checks of the heartbeats. A driver renews its heartbeat twice as often."""
MOST_SECONDS = 1.0
"""The most silence that one check adds, however late the check comes."""


class Activity(StrEnum):
    """The activity of a process's threads between two checks."""

    STOPPED = "was stopped"
    """All threads are stopped (SIGSTOP, or a debugger)."""
    STILL = "stands still"
    """No thread has run, and no thread waits for a processor or a disk."""
    AT_WORK = "does not answer"
    """A thread runs or waits for a processor or a disk: a long garbage collection, an overloaded
    machine, or an endless loop.
    """


LIMITS = {Activity.STOPPED: 0.5, Activity.STILL: 3.0, Activity.AT_WORK: 60.0}
"""The uninterrupted silence at which a process counts as hung, by its activity. Unit: seconds."""


@dataclass(frozen=True)
class Silence:
    """How long a heartbeat has not changed while the agent watched. Unit: seconds."""

    beat: int
    seconds: float = 0.0
    still: float = 0.0
    """The last part of `seconds` in which the process stood still or was stopped."""
    stopped: float = 0.0
    """The last part of `seconds` in which the process was stopped."""

    def hung(self) -> Activity | None:
        """Return how the process hangs; None while it may still work."""
        silent = {Activity.STOPPED: self.stopped, Activity.STILL: self.still, Activity.AT_WORK: self.seconds}
        return next((activity for activity, seconds in silent.items() if seconds >= LIMITS[activity]), None)


def next_silence(before: Silence | None, beat: int, activity: Activity, passed: float) -> Silence:
    """Return the silence at a check that comes `passed` seconds after the check before."""
    if before is None or beat != before.beat:
        return Silence(beat)
    more = min(passed, MOST_SECONDS)
    return Silence(
        beat,
        before.seconds + more,
        0.0 if activity is Activity.AT_WORK else before.still + more,
        before.stopped + more if activity is Activity.STOPPED else 0.0,
    )
