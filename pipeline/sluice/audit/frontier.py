"""Up to which time everything that arrived has gone through a tier. Pure.

From time to time a mark is set: all that arrived before a moment lies in the tier's input before these ends. When the tier has passed the
ends, it is complete up to that moment, in whatever order records come and however their times are mixed.
"""

from collections.abc import Mapping

MOST_MARKS = 200
"""While so many wait, none is set: a tier that is far behind moves in larger steps later."""


class Frontier:
    """One tier's."""

    def __init__(self, complete: float | None = None) -> None:
        """Go on from what was known."""
        self.complete = complete
        """Everything that arrived before this moment has gone through; None while that is not known. Unit: epoch seconds."""
        self._marks: list[tuple[float, dict[str, int]]] = []

    def mark(self, moment: float, ends: Mapping[str, int]) -> None:
        """All that arrived before `moment` lies in the input before `ends`."""
        if len(self._marks) < MOST_MARKS:
            self._marks.append((moment, dict(ends)))

    def passed(self, done: Mapping[str, int]) -> None:
        """Everything before these offsets has gone through."""
        while self._marks and all(
            done.get(partition, 0) >= end for partition, end in self._marks[0][1].items()
        ):
            moment, _ = self._marks.pop(0)
            self.complete = max(moment, self.complete or moment)
