"""Growth that did not help: how the scaler notices it, and how long it remembers."""

from sluice_ops.model.scaler import Attempt, Block, Readings, Starvation
from sluice_ops.planning.scaler.demand import TOLERATED_SECONDS
from sluice_ops.planning.scaler.readings import elapsed
from sluice_ops.planning.scaler.signals import Signals

JUDGED_AFTER = 60.0
"""The time that new workers have to show an effect. Unit: seconds."""
LEAST_GAIN = 0.1
"""The growth of the rate that counts as help. For a small step, half of the step is enough."""
KEEPS_UP = 0.95
"""A tier that processes this part of its load keeps up with it."""
LOAD_FELL = 0.8
"""A block ends below this part of its load."""
MOST_DOUBLINGS = 5
"""How often the time until the next attempt doubles."""
RECOVERED_SECONDS = 600.0
"""A tier that was not starved for so long is not starved any more. Unit: seconds."""


def judge(
    attempt: Attempt, signals: Signals, readings: Readings, load: float, retry_after: float
) -> Attempt | bool:
    """Return whether a growth helped; the attempt as long as that is not known.

    It helped if the rate grew, if no record waited, or if the tier keeps up with its load now. A
    lag that is gone for a moment proves nothing: backpressure lets it swing. An attempt that has
    not got its workers within `retry_after` counts as none.
    """
    now = readings.at
    if attempt.ready is None:
        if signals.workers >= attempt.after:
            return attempt.model_copy(update={"ready": now})
        return attempt if elapsed(now, attempt.at) < retry_after else True
    gain = min(LEAST_GAIN, (attempt.after / max(1, attempt.before) - 1) / 2)
    if readings.rate_done >= attempt.rate_done * (1 + gain):
        return True
    lagged = attempt.lagged or signals.lag_seconds > TOLERATED_SECONDS
    if elapsed(now, attempt.ready) < JUDGED_AFTER:
        return attempt.model_copy(update={"lagged": lagged})
    return not lagged or readings.rate_done >= KEEPS_UP * load


def block_after(attempt: Attempt, readings: Readings, load: float, before: Block | None) -> Block:
    """Return the block after a growth that did not help; `before` is the block until then."""
    return Block(
        before=attempt.before if before is None else min(before.before, attempt.before),
        after=attempt.after,
        done_before=attempt.rate_done,
        done_after=readings.rate_done,
        load=load,
        at=readings.at,
        times=1 if before is None else before.times + 1,
    )


def seconds_until_retry(block: Block, now: float, retry_after: float) -> float:
    """Return the time until the next attempt is allowed at the same load; negative if it is now."""
    doublings = min(block.times - 1, MOST_DOUBLINGS)
    return retry_after * 2.0**doublings - elapsed(now, block.at)


def load_fell(block: Block, load: float) -> bool:
    """Return whether the load fell so far that the block ends."""
    return load < LOAD_FELL * block.load


def starvation(
    before: Starvation | None, attempt: Attempt | None, now: float, *, starved: bool, modest: bool
) -> Starvation | None:
    """Return the tier's starvation after one more look; None if it has recovered, or is modest.

    A worker that starts is not modest for a minute or two. So a modest tier on busy hosts seems
    starved after each growth, until its new workers are known to be modest, too.

    An attempt whose effect is not known when the starvation is seen is the one that counts.
    """
    if modest:
        return None
    if starved:
        if before is not None:
            return before.model_copy(update={"seen": now})
        return Starvation(seen=now, tried=None if attempt is None else attempt.after)
    return before if before is not None and elapsed(now, before.seen) < RECOVERED_SECONDS else None
