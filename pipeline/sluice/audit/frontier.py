"""The time of arrival up to which all records have gone through a tier. Pure.

The audit sets a mark from time to time: all records that arrived before a time lie in the tier's
input before these ends. When the tier has passed the ends, it is complete up to that time. The
order of the records and of their times does not matter.
"""

from collections.abc import Mapping

MAX_MARKS = 200
"""With this many waiting marks, no mark is set; a tier far behind then advances in larger steps."""


class Frontier:
    """The marks of one tier, and the time up to which the tier is complete."""

    def __init__(self, complete: float | None = None) -> None:
        """Start with the saved time, if any."""
        self.complete = complete
        """All records that arrived before this time have gone through. Unit: epoch seconds.

        None: unknown.
        """
        self._marks: list[tuple[float, dict[str, int]]] = []

    def mark(self, moment: float, ends: Mapping[str, int]) -> None:
        """Set a mark: all records that arrived before `moment` lie in the input before `ends`."""
        if len(self._marks) < MAX_MARKS:
            self._marks.append((moment, dict(ends)))

    def passed(self, done: Mapping[str, int]) -> None:
        """Advance to the last mark that the tier has passed.

        All records before the offsets `done` have gone through.
        """
        while self._marks and all(
            done.get(partition, 0) >= end for partition, end in self._marks[0][1].items()
        ):
            moment, _ = self._marks.pop(0)
            self.complete = max(moment, self.complete or moment)
