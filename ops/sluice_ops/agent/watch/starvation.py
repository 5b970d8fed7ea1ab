"""Whether a unit is starved of processor time: pure, like `reconcile`. Called by `sluice_ops.agent.watch.neighbours`.

A unit is starved by what is beside it when its threads wait for a processor more than they run, it has less than its quantum promises, and
none of the processors that it may use stands idle. So one that asks for more than its quantum is not, nor one that does next to nothing,
nor one whose own threads get in each other's way for a moment.
"""

from dataclasses import dataclass, replace

from sluice_ops.agent.host.processes import CpuTime

WINDOW_SECONDS = 10.0
"""How long is measured at a time, at the least."""
TURN_SECONDS = 60.0
"""For so long every window has to say the same before it counts, in either direction: a peak is no starvation, a lull no end of it."""
WAITED = 0.5
"""So much of the time in which its threads could run they wait."""
PROMISED = 0.9
"""Who has this part of its quantum has what it is entitled to."""
LITTLE = 0.1
"""Who could use no more than this part of its quantum has nothing to lose by waiting."""
IDLE = 0.1
"""Where the processors that a unit may use are idle for this part of the time there is room: who waits there waits for itself."""


@dataclass(frozen=True)
class Verdict:
    """What is held of one unit."""

    since: float | None = None
    """Since when it is starved, by the wall clock; None: it is not."""
    turning: float | None = None
    """Since when, on the monotonic clock, every window says the opposite."""


def is_starved(spent: CpuTime, seconds: float, cpu: float, idle: float) -> bool:
    """Tell whether a unit with a quantum of so many cores was starved for these seconds, of which its processors were partly idle."""
    could = spent.ran + spent.waited
    promised = cpu * seconds
    return (
        could > LITTLE * promised
        and spent.ran < PROMISED * promised
        and spent.waited >= WAITED * could
        and idle < IDLE
    )


def next_verdict(before: Verdict, *, starved: bool, begun: float, now: float, wall: float) -> Verdict:
    """Return what is held of a unit after one window more, which had begun then."""
    if starved == (before.since is not None):
        return replace(before, turning=None)
    turning = begun if before.turning is None else before.turning
    if now - turning < TURN_SECONDS:
        return replace(before, turning=turning)
    return Verdict(since=wall if starved else None)
