"""How fast a replay may go: as fast as it is asked to, and no faster than live records bear. Pure: times and waits come in.

It stands still at first and measures what live records take. Then it begins slowly and goes faster step by step; where they take nearly
twice as long as usual it goes at half the pace at once, and in the end stands still, longer each time in a row. What they take while it
stands still is not its doing: that is the usual from then on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

USUAL_SECONDS, MOST_SECONDS = 10.0, 160.0
"""So long it stands still to measure what is usual, at first and at most."""
STEP_SECONDS = 5.0
"""Between two decisions, each by what was measured since the one before."""
TOO_LONG, WELL = 1.8, 1.4
"""So many times the usual is too long (twice is what is promised), and is short enough to go faster."""
FLOOR = 0.01
"""Less than this is not told from a machine's own unrest. Unit: seconds."""
FIRST, LEAST = 0.03, 0.01
"""Parts of the rate that is asked for: the pace at the beginning, and less than which is standing still."""
FASTER, SLOWER = 1.5, 0.5
"""What it is multiplied by. Where waits grow with the load as in a queue, one step from short enough does not lead to too long."""


def p99(waits: Sequence[float]) -> float:
    """Return what ninety-nine of a hundred do not exceed."""
    return sorted(waits)[math.ceil(len(waits) * 0.99) - 1]


@dataclass
class Pace:
    """The pace of one replay."""

    most: float
    """Records per second that are asked for."""
    sentence: str = "measures what live records take"
    """Why it is not as fast as that; nothing when it is."""
    _part: float = 0.0
    _since: float | None = None
    _still: float = USUAL_SECONDS
    _usual: dict[str, float] = field(default_factory=dict)
    """By stream and table, what live records take to get there. Unit: seconds."""
    _waits: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """How many records it may take in a second now; 0 when it stands still."""
        return self._part * self.most

    def look(self, now: float, waits: Mapping[str, Sequence[float]] | None) -> None:
        """Take what live records have taken since the last look; None: it could not be measured, so it stands still."""
        if waits is None:
            self._go(now, 0.0, "stands still: what live records take cannot be measured")
            return
        for place, more in waits.items():
            self._waits.setdefault(place, []).extend(more)
        if self._since is None:
            self._since = now
        if now - self._since >= (STEP_SECONDS if self._part else self._still):
            self._decide(now)

    def _decide(self, now: float) -> None:
        found = {place: p99(waits) for place, waits in self._waits.items() if waits}
        if not self._part:
            self._usual = {place: max(FLOOR, wait) for place, wait in found.items()}
            self._go(now, FIRST, "begins slowly")
            return
        # where nothing came while it stood still, what comes first is the usual
        self._usual = {place: max(FLOOR, wait) for place, wait in found.items()} | self._usual
        worst = max(found, key=lambda place: found[place] / self._usual[place], default=None)
        times = 0.0 if worst is None else found[worst] / self._usual[worst]
        if worst is not None and times >= TOO_LONG:
            part = self._part * SLOWER
            did = "goes slower" if part >= LEAST else "stands still"
            said = f"{did}: live records take {found[worst]:.2f} s to {worst} (p99), and {self._usual[worst]:.2f} s is usual"
            self._still = self._still if part >= LEAST else min(MOST_SECONDS, 2 * self._still)
            self._go(now, part if part >= LEAST else 0.0, said)
        elif times < WELL:
            part, self._still = min(1.0, self._part * FASTER), USUAL_SECONDS
            self._go(now, part, "" if part == 1.0 else "goes faster step by step")
        else:
            self._go(now, self._part, self.sentence)

    def _go(self, now: float, part: float, sentence: str) -> None:
        self._part, self._since, self._waits, self.sentence = part, now, {}, sentence
