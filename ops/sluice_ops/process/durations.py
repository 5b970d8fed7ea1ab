"""For how long something has been known, counted on this process' own monotonic clock: whatever wall clocks do, nothing expires early.

A stamp is a moment that somebody wrote by a wall clock. Here it is only a name: its age counts from when this process first saw it.
Used by the controller and by agents (decision record 0031).
"""

import time
from collections.abc import Callable, Iterable, Mapping


class TimestampAges:
    """When each stamp was first seen; one that is gone is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet."""
        self._clock = clock
        self._first_seen: dict[float, float] = {}

    def track(self, stamps: Iterable[float]) -> None:
        """Take notice of all stamps that there are now."""
        now = self._clock()
        self._first_seen = {stamp: self._first_seen.get(stamp, now) for stamp in stamps}

    def first_seen(self, stamp: float) -> float:
        """Return when a stamp was first seen, on the monotonic clock: now, if it was not yet."""
        return self._first_seen.get(stamp, self._clock())

    def ages(self) -> Mapping[float, float]:
        """Return how old each stamp is. Unit: seconds."""
        now = self._clock()
        return {stamp: now - seen for stamp, seen in self._first_seen.items()}
