"""Whether a partition lost records that were read, while its topic kept its id (KIP-320, decision record 0055).

Each position is kept with the epoch of the partition's leader, as of the time when it was read or later. Only an election cuts a log back,
and each one raises the epoch. So what lies before a position is the same as long as the epoch is. After an election, Kafka tells where the
log of the known epoch ends now. At the position or behind it, all is still there. Before it, records were cut off, or they were read from
the new leader before its epoch was known.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.kafka.positions import GoneError

Resumed = Callable[[Mapping[str, int], Mapping[str, int]], Mapping[str, int]]
"""Asks Kafka of positions with the epochs that they were kept with: the first offset at which the log goes on by another epoch, or the
position itself."""


class ReadAgainError(Exception):
    """A leader was elected since a run began: nobody knows which leader's records its consumers hold, so they are read again."""

    def __init__(self, places: Sequence[str]) -> None:
        """Say of which partitions."""
        super().__init__(
            f"leaders were elected of {', '.join(places)}: what was read and is not written is read again"
        )


@dataclass(frozen=True)
class Logs:
    """Which logs positions belong to, as far as is known."""

    streams: dict[str, str] = field(default_factory=dict)
    """The id of each topic."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The epoch of each partition's leader, by `stream/partition`."""

    def on(self, now: "Logs") -> "Logs":
        """Return what is known once `now` is told."""
        return Logs(self.streams | now.streams, self.epochs | now.epochs)


class Confirmed:
    """Positions that wait until epochs were asked for after they were reached: so they were read by leaders that are known. Pure."""

    def __init__(self) -> None:
        """Begin with none."""
        self._new: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}

    def take(self, positions: Mapping[str, int]) -> None:
        """Have these wait."""
        self._new |= positions

    def answered(self) -> None:
        """Confirm those that waited when the question was asked whose answer has come: it was asked as the one before was answered."""
        self._confirmed |= self._asked
        self._asked, self._new = self._new, {}

    def news(self) -> dict[str, int]:
        """Return those that were confirmed since the last call."""
        confirmed, self._confirmed = self._confirmed, {}
        return confirmed


def cut(
    positions: Mapping[str, int], known: Mapping[str, int], now: Mapping[str, int], resumed: Resumed
) -> dict[str, int]:
    """Return the partitions whose log of the known epoch ends before the position, and where.

    Kafka is asked only of those whose leader was elected since; of one without a known epoch nobody can tell.
    """
    asked = {
        place: position
        for place, position in positions.items()
        if place in known and now.get(place) != known[place]
    }
    if not asked:
        return {}
    found = resumed(asked, {place: known[place] for place in asked})
    return {place: at for place, at in found.items() if at < asked[place]}


def cut_error(positions: Mapping[str, int], found: Mapping[str, int], way_out: str) -> GoneError:
    """Say which partitions were cut back, and how to go on."""
    where = "; ".join(
        f"{place} was cut back to offset {at}, and was read up to {positions[place]}"
        for place, at in sorted(found.items())
    )
    return GoneError(
        f"{where}: a broker lost records that it had acknowledged (its disk, its power, or an unclean election), and other records "
        f"have their offsets now; the tier has stopped; {way_out}"
    )


def is_same(
    made: Mapping[int, Iterable[tuple[int | None, str]]], there: Iterable[tuple[int, int, str]]
) -> bool:
    """Tell whether each record that was put out was made of the record that is at its offset now.

    `made` has, by offset, when each such record arrived in the pipeline and how it is called; `there` yields offset, arrival and name of
    what is in the input, in order.
    """
    left = dict(made)
    for offset, arrived, name in there:
        for when, called in left.pop(offset, ()):
            if when != arrived or (called != name and not called.startswith(f"{name}:")):
                return False
        if not left:
            return True
    return not left
