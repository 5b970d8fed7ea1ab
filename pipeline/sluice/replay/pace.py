"""The pace of a replay: at most the requested rate, and slower if live records suffer. Pure.

1. A replay first pauses, and measures the usual latency of live records.
2. It starts slowly and accelerates step by step.
3. If live records take nearly twice as long as usual, it halves its pace at once.
4. Below the smallest pace it pauses, for a longer time after each pause in a row.

The replay does not cause the latency during a pause, so this latency is the usual one from then on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

USUAL_SECONDS, MAX_PAUSE_SECONDS = 10.0, 160.0
"""The first pause, which measures the usual latency, and the longest pause."""
STEP_SECONDS = 5.0
"""The time between two decisions; each uses the latencies since the previous decision."""
TOO_LONG, WELL = 1.8, 1.4
"""Multiples of the usual latency: at the first one the pace is halved, below the second one raised.

Sluice promises at most twice the usual latency.
"""
FLOOR = 0.01
"""Latencies below this are noise. Unit: seconds."""
FIRST, LEAST = 0.03, 0.01
"""Parts of the requested rate: the first pace, and the smallest pace before a pause."""
FASTER, SLOWER = 1.5, 0.5
"""The factors of a step. If latency grows with load as in a queue, a step up from below `WELL` does
not reach `TOO_LONG`.
"""


def p99(waits: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(waits)[math.ceil(len(waits) * 0.99) - 1]


@dataclass
class Pace:
    """The pace of one replay."""

    most: float
    """The requested rate. Unit: records per second."""
    sentence: str = "measures the usual latency of live records"
    """Why the pace is below the requested rate, without a subject; empty at the requested rate."""
    _part: float = 0.0
    """The part of the requested rate; 0 during a pause."""
    _since: float | None = None
    _pause: float = USUAL_SECONDS
    _usual: dict[str, float] = field(default_factory=dict)
    """The usual latency of live records, by stream and table. Unit: seconds."""
    _waits: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """The current pace, 0 during a pause. Unit: records per second."""
        return self._part * self.most

    def add(self, now: float, waits: Mapping[str, Sequence[float]] | None) -> None:
        """Add the latencies since the last call; None: nothing was measured, so the replay pauses.

        `now` is in seconds, of any clock that only grows.
        """
        if waits is None:
            self._set(now, 0.0, "pauses: the latency of live records cannot be measured")
            return
        for place, more in waits.items():
            self._waits.setdefault(place, []).extend(more)
        if self._since is None:
            self._since = now
        if now - self._since >= (STEP_SECONDS if self._part else self._pause):
            self._decide(now)

    def _decide(self, now: float) -> None:
        latencies = {place: p99(waits) for place, waits in self._waits.items() if waits}
        if not self._part:
            self._usual = {place: max(FLOOR, wait) for place, wait in latencies.items()}
            self._set(now, FIRST, "starts slowly")
            return
        # for places without records during the pause, the first latency is the usual one
        self._usual = {place: max(FLOOR, wait) for place, wait in latencies.items()} | self._usual
        worst = max(latencies, key=lambda place: latencies[place] / self._usual[place], default=None)
        ratio = 0.0 if worst is None else latencies[worst] / self._usual[worst]
        if worst is not None and ratio >= TOO_LONG:
            part = self._part * SLOWER
            action = "slows down" if part >= LEAST else "pauses"
            sentence = (
                f"{action}: live records take {latencies[worst]:.2f} s to {worst} (p99), "
                f"and {self._usual[worst]:.2f} s is usual"
            )
            self._pause = self._pause if part >= LEAST else min(MAX_PAUSE_SECONDS, 2 * self._pause)
            self._set(now, part if part >= LEAST else 0.0, sentence)
        elif ratio < WELL:
            part, self._pause = min(1.0, self._part * FASTER), USUAL_SECONDS
            self._set(now, part, "" if part == 1.0 else "accelerates step by step")
        else:
            self._set(now, self._part, self.sentence)

    def _set(self, now: float, part: float, sentence: str) -> None:
        self._part, self._since, self._waits, self.sentence = part, now, {}, sentence
