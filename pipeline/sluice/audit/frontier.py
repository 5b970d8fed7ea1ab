"""The time of arrival up to which all records have gone through a tier. Pure.

The audit sets a mark from time to time: all records that arrived before a time lie in the tier's
input before these ends. When the tier has passed the ends, it is complete up to that time. The
order of the records and of their times does not matter.

Tiers that a stream leads back to form a loop, which is complete as a whole. When all of its tiers
have passed the ends of their inputs, each record of before is one tier further. A stream leads back
a limited number of times, so after a known number of such turns the records have left the loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.api.declarations import Tier

MAX_MARKS = 200
"""With this many waiting marks, no mark is set; a tier far behind then advances in larger steps."""


@dataclass(frozen=True)
class Loop:
    """The tiers of a loop, or a tier that is in none."""

    tiers: tuple[Tier, ...]
    turns: int
    """The most tiers of the loop that a record passes, one after the other."""

    @property
    def is_known(self) -> bool:
        """Whether the loop can be complete.

        A tier with state keeps records, and writes new ones.
        """
        return len(self.tiers) == 1 or all(tier.state is None for tier in self.tiers)


def loops(tiers: Sequence[Tier]) -> list[Loop]:
    """Return the loops of a pipeline, in the order of their first tiers."""
    readers = {
        tier.name: {
            other.name
            for other in tiers
            if {stream.name for stream in tier.outputs} & {stream.name for stream in other.inputs}
        }
        for tier in tiers
    }
    reached: dict[str, set[str]] = {}
    for tier in tiers:
        found, new = set[str](), {tier.name}
        while new:
            new = set[str]().union(*(readers[name] for name in new)) - found
            found |= new
        reached[tier.name] = found
    grouped: list[Loop] = []
    for tier in tiers:
        if any(tier in loop.tiers for loop in grouped):
            continue
        mates = tuple(
            other
            for other in tiers
            if other is tier or (other.name in reached[tier.name] and tier.name in reached[other.name])
        )
        written = {stream.name for mate in mates for stream in mate.outputs}
        back = {stream for mate in mates for stream in mate.inputs if stream.rounds}
        rounds = sum(stream.rounds for stream in back if stream.name in written)
        grouped.append(Loop(mates, (rounds + 1) * len(mates)))
    return grouped


@dataclass
class Mark:
    moment: float
    ends: dict[str, int]
    turns: int
    """How often such ends still have to be passed."""


class Frontier:
    """The marks of one loop, and the time up to which the loop is complete."""

    def __init__(self, complete: float | None = None, turns: int = 1) -> None:
        """Start with the saved time, if any."""
        self.complete = complete
        """All records that arrived before this time have gone through. Unit: epoch seconds.

        None: unknown.
        """
        self._turns = turns
        self._marks: list[Mark] = []

    def mark(self, moment: float, ends: Mapping[str, int]) -> None:
        """Set a mark: all records that arrived before `moment` lie in the inputs before `ends`."""
        if len(self._marks) < MAX_MARKS:
            self._marks.append(Mark(moment, dict(ends), self._turns))

    def passed(self, done: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Advance to the last mark that the loop has passed often enough.

        All records before the offsets `done` have gone through one tier, and what was made of them
        lies before the ends of the inputs, which were asked later.
        """
        waiting: list[Mark] = []
        for mark in self._marks:
            if all(done.get(place, 0) >= end for place, end in mark.ends.items()):
                mark.turns, mark.ends = mark.turns - 1, dict(ends)
            if mark.turns:
                waiting.append(mark)
            else:
                self.complete = max(mark.moment, self.complete or mark.moment)
        self._marks = waiting
