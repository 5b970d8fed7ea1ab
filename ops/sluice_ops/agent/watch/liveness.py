"""When a process counts as hung: by the heartbeats that do not come, and by what the kernel shows of its threads. Pure.

Silence counts only while somebody watched it. A host that was suspended, or an agent that stood still itself, adds one look at most: so a
process that renews its heartbeat between any two looks is never ended, whatever clocks do.
"""

from dataclasses import dataclass
from enum import StrEnum

LOOK_SECONDS = 0.5
"""Between two looks at the heartbeats. A driver renews them twice as often."""
MOST_SECONDS = 1.0
"""So much silence one look may add, however late it comes."""


class Activity(StrEnum):
    """What the kernel shows of a process between two looks."""

    STOPPED = "was stopped"
    """Every thread is stopped (SIGSTOP, or a debugger)."""
    STILL = "stands still"
    """No thread has run, and none waits for a processor or a disk."""
    AT_WORK = "does not answer"
    """It runs, or would if it had a processor: a long garbage collection, a machine that is too busy, or an endless loop."""


LIMITS = {Activity.STOPPED: 1.0, Activity.STILL: 3.0, Activity.AT_WORK: 60.0}
"""How much silence in a row makes a process count as hung, by its standing meanwhile. Unit: seconds."""


@dataclass(frozen=True)
class Silence:
    """How long a heartbeat has not moved, while it was watched."""

    beat: int
    seconds: float = 0.0
    still: float = 0.0
    """Of these, the last ones in which the process stood still, or was stopped."""
    stopped: float = 0.0
    """Of these, the last ones in which it was stopped."""

    def hung(self) -> Activity | None:
        """Return how the process hangs; None while it may still be alive."""
        lasted = {Activity.STOPPED: self.stopped, Activity.STILL: self.still, Activity.AT_WORK: self.seconds}
        return next((standing for standing, seconds in lasted.items() if seconds >= LIMITS[standing]), None)


def next_silence(before: Silence | None, beat: int, standing: Activity, passed: float) -> Silence:
    """Return the silence as of a look that comes so many seconds after the one before."""
    if before is None or beat != before.beat:
        return Silence(beat)
    more = min(passed, MOST_SECONDS)
    return Silence(
        beat,
        before.seconds + more,
        0.0 if standing is Activity.AT_WORK else before.still + more,
        before.stopped + more if standing is Activity.STOPPED else 0.0,
    )
