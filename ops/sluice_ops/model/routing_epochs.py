"""By which ways a tier's records go: over how many partitions of each output they are spread, and from where on in its inputs.

Who reads a stream tells a replay by the way that it came, so every run of a tier has to send a record the way that it went the first time,
however many partitions there are by now (decision record 0040). Drivers say their ways in their reports; replays read them there. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from sluice_ops.model.resources import Frozen


class Way(Frozen):
    """Over how many partitions of each output records are spread, from some positions of the inputs on."""

    since: dict[str, int] = Field(default_factory=dict)
    """By `stream/partition`: all before was out when this began. A partition that is not named was not there: from 0 on."""
    partitions: dict[str, int]
    """By output."""


class Ways(Frozen):
    """All that is known of a tier's ways; the last one is that of new records."""

    turn: int = 0
    """Grows with each change: of two of these the greater one holds."""
    each: tuple[Way, ...]
    """The oldest first."""

    @property
    def now(self) -> dict[str, int]:
        """Over how many partitions of each output new records are spread."""
        return self.each[-1].partitions

    @property
    def since(self) -> dict[str, int]:
        """From where on they are; no run may put out again what comes before, for that went another way."""
        return self.each[-1].since

    def unused(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return those of the outputs that have more partitions than are used."""
        return {name: count for name, count in counts.items() if count > self.now.get(name, count)}

    def taking_in(self, counts: Mapping[str, int]) -> "Ways":
        """Take in outputs that are new, and those that have fewer partitions than before: they were made anew."""
        each = tuple(
            way.model_copy(
                update={
                    "partitions": way.partitions
                    | {name: min(count, way.partitions.get(name, count)) for name, count in counts.items()}
                }
            )
            for way in self.each
        )
        return self if each == self.each else Ways(turn=self.turn + 1, each=each)

    def widened(self, counts: Mapping[str, int], since: Mapping[str, int]) -> "Ways":
        """Spread what comes after `since`, before which all is out, over so many."""
        return Ways(
            turn=self.turn + 1, each=(*self.each, Way(since=dict(since), partitions=self.now | dict(counts)))
        )

    def stretches(self) -> Iterator[tuple[Way, dict[str, int] | None]]:
        """Yield each way, and where the next one begins; None after the last."""
        for way, following in zip(self.each, self.each[1:], strict=False):
            yield way, following.since
        yield self.each[-1], None


def begun(counts: Mapping[str, int]) -> Ways:
    """Return the ways of a tier that nobody has said anything of."""
    return Ways(each=(Way(partitions=dict(counts)),))


def newest(found: Iterable[Ways | None]) -> Ways | None:
    """Return the ways that hold, of what the incarnations of a tier have said."""
    return max((ways for ways in found if ways is not None), key=lambda ways: ways.turn, default=None)
