"""Measures a tier's load over some seconds, for the scaler. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice_ops.model.load import LOAD_SECONDS, TierLoad


@dataclass(frozen=True)
class Sums:
    """What a driver has counted at one look."""

    now: float
    """Monotonic clock."""
    ends: Mapping[str, int]
    """The end of each input partition."""
    done: int
    """Processed input records."""
    out: int
    """Output records."""
    busy_seconds: float | None
    """The time in which a batch was processed; None: a realtime tier."""
    fixed_seconds: float = 0.0
    """The part of it that does not depend on the number of records."""
    metered: bool = False
    """Whether the tier is throttled, or catches up after it."""
    quarantined: int = 0
    """Bad records that went to quarantine."""


@dataclass
class LoadMeter:
    """Compares looks that are `LOAD_SECONDS` apart."""

    _before: Sums | None = None
    _throttled: bool = False
    """Whether `metered` was true at any look since `_before`."""

    def forget(self) -> None:
        """Begin anew: another incarnation owns the tier, or the query does not run."""
        self._before, self._throttled = None, False

    def measure(
        self, sums: Sums, *, at: float, workers: int, lag: int, lag_seconds: float
    ) -> TierLoad | None:
        """Return the load since the last result; None if that is less than `LOAD_SECONDS` ago."""
        before, throttled = self._before, self._throttled or sums.metered
        if before is None or sums.now - before.now < LOAD_SECONDS:
            self._before, self._throttled = before or sums, throttled
            return None
        self._before, self._throttled = sums, sums.metered
        seconds = sums.now - before.now
        arrived = sum(max(0, end - before.ends.get(name, end)) for name, end in sums.ends.items())
        busy = (
            None
            if sums.busy_seconds is None or before.busy_seconds is None
            else _part(sums.busy_seconds - before.busy_seconds, seconds)
        )
        return TierLoad(
            at=at,
            rate_in=round(arrived / seconds, 1),
            rate_done=round(max(0, sums.done - before.done) / seconds, 1),
            rate_out=round(max(0, sums.out - before.out) / seconds, 1),
            rate_quarantined=round(max(0, sums.quarantined - before.quarantined) / seconds, 3),
            busy=busy,
            fixed=_part(sums.fixed_seconds - before.fixed_seconds, seconds),
            workers=workers,
            lag=lag,
            lag_seconds=lag_seconds,
            throttled=throttled,
        )


def _part(of: float, seconds: float) -> float:
    return min(1.0, max(0.0, round(of / seconds, 3)))  # a batch may end during a look
