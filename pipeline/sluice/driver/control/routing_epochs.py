"""What runs of a tier agree on before records are spread over other partitions than before
(decision 40). Pure.

`sluice.driver.control.control_channel` implements the agreement. `SoleWriter` tells when no other
run writes records any more. A routing epoch (`RoutingEpoch`) is a stretch of the inputs whose
records are spread over the same number of output partitions; `RoutingEpochs` holds all routing
epochs of a tier.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from sluice.api.declarations import Tier
from sluice.api.grouping import Global
from sluice_ops.model.routing_epochs import RoutingEpochs, newest

ALONE_SECONDS = 60.0
"""For this long no other run's records may have come out. A run that was stopped or killed, and its
executors, are gone by then."""
LOOK_SECONDS = 2.0
"""Time between two checks for other writers, while some output partitions are unused."""


class RoutingAgreement(Protocol):
    """What the incarnations of a tier have told each other about their routing epochs."""

    def agreed_routing(self) -> RoutingEpochs | None:
        """Return the valid routing epochs, None if no run has announced any; an error if they
        cannot be read.
        """

    def announce_routing(self, routing: RoutingEpochs) -> None:
        """Report the routing epochs with which a run begins."""

    def switch_routing(self, routing: RoutingEpochs) -> bool:
        """Make other routing epochs valid from now on; return False if another incarnation may have
        been told to run.
        """

    def other_writer(self) -> str | None:
        """Return a sentence that names another incarnation with orders to write the tier's records;
        None if none has.
        """


class LocalAgreement:
    """The agreement of an engine without other incarnations, kept in memory."""

    def __init__(self) -> None:
        """Begin without routing epochs."""
        self._routing: RoutingEpochs | None = None

    def agreed_routing(self) -> RoutingEpochs | None:
        """Return the routing epochs that were announced or switched to last."""
        return self._routing

    def announce_routing(self, routing: RoutingEpochs) -> None:
        """Keep them, unless newer ones are known."""
        self._routing = newest((routing, self._routing))

    def switch_routing(self, routing: RoutingEpochs) -> bool:
        """Keep them; return True."""
        self._routing = routing
        return True

    def other_writer(self) -> str | None:
        """Return None: no other incarnation exists."""


@dataclass
class SoleWriter:
    """Measures how long the records of one run alone have come out."""

    _since: float | None = None
    _wrote: bool = False
    """Whether records of that run have come out."""

    def note_runs(self, now: float, mine: str, runs: Collection[str]) -> None:
        """Take the names of the runs whose records have come out since the last look."""
        if set(runs) - {mine}:
            self.forget()
            return
        self._since = now if self._since is None else self._since
        self._wrote |= mine in runs

    def lasts(self, now: float) -> bool:
        """Tell whether this has lasted ALONE_SECONDS; False while no record comes out, which proves
        nothing.
        """
        return self._wrote and self._since is not None and now - self._since >= ALONE_SECONDS

    def forget(self) -> None:
        """Start the measurement again."""
        self._since, self._wrote = None, False


def spread_outputs(tier: Tier) -> list[str]:
    """Return the outputs whose number of partitions decides where a record goes."""
    return [stream.name for stream in tier.outputs if not isinstance(stream.grouping, Global)]


def unused_sentence(unused: Mapping[str, int], now: Mapping[str, int], why: str) -> str:
    """Return a sentence that names the partitions without records, and what must happen before they
    get records.
    """
    streams = ", ".join(
        f"{name} has {count} partitions and {now[name]} of them get records"
        for name, count in sorted(unused.items())
    )
    return f"{streams}, until this run is alone; {why}"
