"""What runs of a tier have to agree on before a record goes another way than those before it (decision record 0040). Pure.

The driver's end of the channel is the agreement (`sluice.driver.control.control_channel`); `Alone` tells when nobody else puts records out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sluice.api.declarations import Tier
from sluice.api.grouping import Global
from sluice_ops.model.routing_epochs import Ways, newest

ALONE_SECONDS = 60.0
"""For so long no other run's records may have come out: one that was ended, or killed, is gone by then, and its executors too."""
LOOK_SECONDS = 2.0
"""Between two looks at who puts records out, while there are partitions that are not used."""


class Agreement(Protocol):
    """What the incarnations of a tier have said to each other of their ways."""

    def heard(self) -> Ways | None:
        """Return the ways that hold; an error where that cannot be read."""

    def say(self, ways: Ways) -> None:
        """Say by which ways a run begins."""

    def keep(self, ways: Ways) -> bool:
        """Take other ways from now on, if nobody else may have been told to run meanwhile; return whether it is so."""

    def company(self) -> str | None:
        """Say who else is told to put out the tier's records; None where nobody is."""


class Apart:
    """The agreement of an engine that no other one runs beside: in memory."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._said: Ways | None = None

    def heard(self) -> Ways | None:
        """Return what was said last."""
        return self._said

    def say(self, ways: Ways) -> None:
        """Keep it."""
        self._said = newest((ways, self._said))

    def keep(self, ways: Ways) -> bool:
        """Keep it."""
        self._said = ways
        return True

    def company(self) -> str | None:
        """Nobody else knows of it."""


@dataclass
class Alone:
    """For how long records of one run alone have come out."""

    _since: float | None = None
    _shown: bool = False

    def look(self, now: float, mine: str, runs: Collection[str]) -> None:
        """Take note of the runs whose records have come out since the last look."""
        if set(runs) - {mine}:
            self.forget()
            return
        self._since = now if self._since is None else self._since
        self._shown |= mine in runs

    def lasts(self, now: float) -> bool:
        """Tell whether that is long enough; where nothing comes out, nobody knows."""
        return self._shown and self._since is not None and now - self._since >= ALONE_SECONDS

    def forget(self) -> None:
        """Begin anew."""
        self._since, self._shown = None, False


def spread(tier: Tier) -> list[str]:
    """Name the outputs where the way of a record hangs on how many partitions there are."""
    return [stream.name for stream in tier.outputs if not isinstance(stream.grouping, Global)]


def unused_sentence(unused: Mapping[str, int], now: Mapping[str, int], why: str) -> str:
    """Say which partitions get no records, and what that waits for."""
    streams = ", ".join(
        f"{name} has {count} partitions and {now[name]} of them get records"
        for name, count in sorted(unused.items())
    )
    return f"{streams}, until this run is alone; {why}"
