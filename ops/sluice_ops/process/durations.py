"""Ages of timestamps, counted on this process's monotonic clock (decision 31).

A timestamp is a wall clock time that some process wrote, and wall clocks may jump. So a timestamp
is only an identity here: its age counts from the moment when this process first saw it. Nothing
expires early. The controller and agents use this module.
"""

import time
from collections.abc import Callable, Iterable, Mapping


class TimestampAges:
    """The time at which each timestamp was first seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_seen: dict[float, float] = {}

    def track(self, timestamps: Iterable[float]) -> None:
        """Set the current timestamps; forget all others."""
        now = self._clock()
        self._first_seen = {timestamp: self._first_seen.get(timestamp, now) for timestamp in timestamps}

    def first_seen(self, timestamp: float) -> float:
        """Return when the timestamp was first seen, on the monotonic clock; now if it is
        unknown.
        """
        return self._first_seen.get(timestamp, self._clock())

    def ages(self) -> Mapping[float, float]:
        """Return the age of each timestamp. Unit: seconds."""
        now = self._clock()
        return {timestamp: now - first_seen for timestamp, first_seen in self._first_seen.items()}
