"""Checks whether a partition lost records that were read, while its topic kept its id.

KIP-320 and decision 55 have the details. Each position is stored with the epoch of the
partition's leader, as of the time of reading or later. Only an election cuts a log back, and each
election raises the epoch. So all records before a position are unchanged while the epoch is.

After an election, Kafka tells where the log of the known epoch ends now. At the position or later:
all records still exist. Before the position: records were cut off, or the records were read from
the new leader before its epoch was known.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.kafka.positions import RecordsGoneError

Resumed = Callable[[Mapping[str, int], Mapping[str, int]], Mapping[str, int]]
"""Asks Kafka about positions with their epochs.

The result is the first offset at which the log continues with another epoch, or the position
itself.
"""


class ReadAgainError(Exception):
    """A leader was elected since a run began, so the run reads its records again.

    It is unknown which leader's records the run's consumers hold.
    """

    def __init__(self, places: Sequence[str]) -> None:
        super().__init__(
            f"leaders were elected for {', '.join(places)}: records that were read and not yet written are "
            "read again"
        )


@dataclass(frozen=True)
class Logs:
    """The logs to which positions belong, as far as known."""

    streams: dict[str, str] = field(default_factory=dict)
    """The id of each topic."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The epoch of each partition's leader, by `stream/partition`."""

    def on(self, now: "Logs") -> "Logs":
        """Return these logs, updated with the logs of `now`."""
        return Logs(self.streams | now.streams, self.epochs | now.epochs)


class Confirmed:
    """Positions that are confirmed after a question for leader epochs that followed them. Pure.

    The leaders from which their records were read are then known.
    """

    def __init__(self) -> None:
        self._new: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}

    def take(self, positions: Mapping[str, int]) -> None:
        """Add positions that wait."""
        self._new |= positions

    def answered(self) -> None:
        """Note that an answer has come, and that the next question was asked at the same time.

        The positions that waited when the answered question was asked are confirmed.
        """
        self._confirmed |= self._asked
        self._asked, self._new = self._new, {}

    def news(self) -> dict[str, int]:
        """Return the positions that were confirmed since the last call."""
        confirmed, self._confirmed = self._confirmed, {}
        return confirmed


def cut(
    positions: Mapping[str, int], known: Mapping[str, int], now: Mapping[str, int], resumed: Resumed
) -> dict[str, int]:
    """Return the partitions whose log of the known epoch ends before the position, and where.

    Kafka is asked only about partitions whose leader changed. For a partition without a known
    epoch, a cut cannot be detected.
    """
    suspects = {
        place: position
        for place, position in positions.items()
        if place in known and now.get(place) != known[place]
    }
    if not suspects:
        return {}
    resumed_at = resumed(suspects, {place: known[place] for place in suspects})
    return {place: offset for place, offset in resumed_at.items() if offset < suspects[place]}


def cut_error(positions: Mapping[str, int], cuts: Mapping[str, int], way_out: str) -> RecordsGoneError:
    """Return the error that names the partitions that were cut back, and the next step."""
    where = "; ".join(
        f"{place} was cut back to offset {offset}, and was read up to {positions[place]}"
        for place, offset in sorted(cuts.items())
    )
    return RecordsGoneError(
        f"{where}: a broker lost records that it had acknowledged (by a lost disk, a loss of power, or an "
        f"unclean election), and other records have their offsets now; the tier has stopped; {way_out}"
    )


def is_same(
    made: Mapping[int, Iterable[tuple[int | None, str]]], present: Iterable[tuple[int, int, str]]
) -> bool:
    """Tell whether each output record was made of the record that is now at its offset.

    `made` has, by offset, the arrival time and name of each input record of the output. `present`
    yields offset, arrival time and name of the input's records, in order.
    """
    unchecked = dict(made)
    for offset, arrived, name in present:
        for made_at, made_name in unchecked.pop(offset, ()):
            if made_at != arrived or (made_name != name and not made_name.startswith(f"{name}:")):
                return False
        if not unchecked:
            return True
    return not unchecked
