"""Routing epochs: from which input offsets on a tier uses how many partitions of each output. Pure.

A reader recognises a replay by the path that it came. So each run of a tier has to send a record to
the same partition as the first run, however many partitions the stream has now (decision 40).
Drivers report their routing epochs (`RoutingEpochs`); replays read them there.
"""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import Field

from sluice_ops.model.resources import Frozen


class RoutingEpoch(Frozen):
    """One routing epoch: the partitions of each output that are used from some input offsets on."""

    since: dict[str, int] = Field(default_factory=dict)
    """By `stream/partition`: the first offset of the epoch.

    Earlier records were written before the epoch began. A missing partition did not exist then, so
    it counts from 0.
    """
    partitions: dict[str, int]
    """By output: the number of used partitions."""


class RoutingEpochs(Frozen):
    """All routing epochs of a tier. The last one is that of new records."""

    turn: int = 0
    """Grows with each change. Of two values, the one with the higher `turn` is valid."""
    each: tuple[RoutingEpoch, ...]
    """The epochs, the oldest first."""

    @property
    def now(self) -> dict[str, int]:
        """By output: the number of partitions over which new records are spread."""
        return self.each[-1].partitions

    @property
    def since(self) -> dict[str, int]:
        """The first offsets of the last epoch.

        A run must not write earlier records with this epoch, because they took another path.
        """
        return self.each[-1].since

    def unused(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the outputs that have more partitions than are used, with their numbers."""
        return {name: count for name, count in counts.items() if count > self.now.get(name, count)}

    def taking_in(self, counts: Mapping[str, int]) -> "RoutingEpochs":
        """Return the epochs with new outputs, and with smaller numbers for recreated outputs.

        An output with fewer partitions than before was deleted and made again.
        """
        each = tuple(
            epoch.model_copy(
                update={
                    "partitions": epoch.partitions
                    | {name: min(count, epoch.partitions.get(name, count)) for name, count in counts.items()}
                }
            )
            for epoch in self.each
        )
        return self if each == self.each else RoutingEpochs(turn=self.turn + 1, each=each)

    def widened(self, counts: Mapping[str, int], since: Mapping[str, int]) -> "RoutingEpochs":
        """Return the epochs with a new one from the offsets `since` on.

        Before the call, the tier has written the output of all records before `since`.
        """
        return RoutingEpochs(
            turn=self.turn + 1,
            each=(*self.each, RoutingEpoch(since=dict(since), partitions=self.now | dict(counts))),
        )

    def stretches(self) -> Iterator[tuple[RoutingEpoch, dict[str, int] | None]]:
        """Yield each epoch with the first offsets of the next one, or with None for the last."""
        for epoch, following in zip(self.each, self.each[1:], strict=False):
            yield epoch, following.since
        yield self.each[-1], None


def begun(counts: Mapping[str, int]) -> RoutingEpochs:
    """Return the first routing epochs of a tier, for outputs with so many partitions."""
    return RoutingEpochs(each=(RoutingEpoch(partitions=dict(counts)),))


def newest(reported: Iterable[RoutingEpochs | None]) -> RoutingEpochs | None:
    """Return the valid one of the values that a tier's incarnations reported; None: there
    is none.
    """
    return max(
        (routing for routing in reported if routing is not None),
        key=lambda routing: routing.turn,
        default=None,
    )
