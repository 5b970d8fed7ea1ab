"""When a warm-up is over: when it gets no quicker, whatever that takes on this machine. Pure."""

from collections.abc import Sequence

MOST_SECONDS = 60.0
"""A warm-up takes so long at most."""
ENOUGH_RECORDS = 1_000
"""Records of each partition that a warm-up reads again, so that the code that they go through is compiled."""
LEVEL = 0.8
"""Batches that take so much of what those before took have stopped getting quicker."""
LOOK_BACK_SECONDS = 3.0
"""One and a half micro-batches."""


def level(seconds: Sequence[float]) -> bool:
    """Tell whether batches take about as long as those before: the last two no less than four fifths of the two before them."""
    before, last = seconds[-4:-2], seconds[-2:]
    return len(before) == len(last) == 2 and sum(last) >= LEVEL * sum(before)  # noqa: PLR2004 - two and two


class Outflow:
    """What comes out of a query whose tasks may run for a day, so that no batch tells how long it takes."""

    def __init__(self, wanted: int, begun: float) -> None:
        """Expect so many records that wait to be read, of which its transform may put out fewer."""
        self._wanted, self._begun, self._works = wanted, begun, False
        self._seen: list[tuple[float, int]] = []

    def settled(self, now: float, out: int, *, at_work: bool) -> bool:
        """Tell whether all is out, or what was waiting is and the rest comes in as ever: no more than half of it in the last seconds.

        Before its tasks have been at work, and before anything has come all the way where something is to come, it has not.
        """
        if out >= (self._wanted or ENOUGH_RECORDS) or now - self._begun > MOST_SECONDS:
            return True
        self._works = self._works or at_work
        if not self._works or (out == 0 and self._wanted):
            return False
        self._seen.append((now, out))
        long_ago = [before for at, before in self._seen if at <= now - LOOK_BACK_SECONDS]
        return bool(long_ago) and 2 * (out - long_ago[-1]) <= out
