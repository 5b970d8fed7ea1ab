"""Growth that did not help: how the scaler notices it, and how long it remembers."""

from sluice_ops.model.scaler import Attempt, Block, Readings, Starvation
from sluice_ops.planning.scaler.demand import TOLERATED_SECONDS
from sluice_ops.planning.scaler.readings import elapsed
from sluice_ops.planning.scaler.signals import Signals

JUDGED_AFTER = 60.0
"""The time that new workers have to show an effect. Unit: seconds."""
LEAST_GAIN = 0.1
"""The growth of the rate that counts as help. For a small step, half of the step is enough."""
LOAD_FELL = 0.8
"""A block ends below this part of its load."""
RECOVERED_SECONDS = 600.0
"""A tier that was not starved for so long is not starved any more. Unit: seconds."""


def judge(
    attempt: Attempt, signals: Signals, readings: Readings, load: float, retry_after: float
) -> Attempt | Block | None:
    """Return the attempt while its effect is unknown, a block if it did not help, None if it did.

    An attempt that never gets its workers is forgotten after `retry_after`.
    """
    now = readings.at
    if attempt.ready is None:
        if signals.workers >= attempt.after:
            return attempt.model_copy(update={"ready": now})
        return attempt if elapsed(now, attempt.at) < retry_after else None
    gain = min(LEAST_GAIN, (attempt.after / max(1, attempt.before) - 1) / 2)
    if signals.lag_seconds <= TOLERATED_SECONDS or readings.rate_done >= attempt.rate_done * (1 + gain):
        return None
    if elapsed(now, attempt.ready) < JUDGED_AFTER:
        return attempt
    return Block(
        before=attempt.before,
        after=attempt.after,
        done_before=attempt.rate_done,
        done_after=readings.rate_done,
        load=load,
        at=now,
    )


def holds(block: Block, load: float, now: float, retry_after: float) -> bool:
    """Return whether a block still holds at this load."""
    return elapsed(now, block.at) < retry_after and load >= LOAD_FELL * block.load


def starvation(before: Starvation | None, now: float, *, starved: bool) -> Starvation | None:
    """Return the tier's starvation after one more look; None if it has recovered."""
    if starved:
        return Starvation(seen=now, tried=None if before is None else before.tried)
    return before if before is not None and elapsed(now, before.seen) < RECOVERED_SECONDS else None
