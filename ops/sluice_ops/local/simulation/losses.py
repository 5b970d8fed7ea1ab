"""From what was published to how soon each loss was answered. Pure; fed by `run` with what the simulated agents received."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sluice_ops.model.ids import HostName, UnitId


@dataclass(frozen=True)
class Held:
    """A unit of some host's assignment."""

    id: UnitId
    tenant: str
    incarnation: int


@dataclass(frozen=True)
class Published:
    """An assignment, and when ZooKeeper took it."""

    host: HostName
    at: float
    units: frozenset[Held]


@dataclass(frozen=True)
class Loss:
    """A host that was lost, when, and what it held."""

    host: HostName
    at: float
    units: frozenset[Held]

    @property
    def of_driver(self) -> bool:
        """Whether it took a driver along, so that a whole tier is started anew."""
        return any(unit.id.startswith("driver-") for unit in self.units)


@dataclass
class Board:
    """All assignments as they were received, and each unit's first appearances."""

    now: dict[HostName, frozenset[Held]] = field(default_factory=dict)
    appeared: list[tuple[float, HostName, Held]] = field(default_factory=list)

    def take(self, published: Published) -> None:
        """Note one assignment."""
        fresh = published.units - self.now.get(published.host, frozenset())
        self.now[published.host] = published.units
        self.appeared.extend((published.at, published.host, unit) for unit in fresh)

    def since(self, at: float) -> list[tuple[float, HostName, Held]]:
        """Return what has appeared from then on."""
        return [seen for seen in self.appeared if seen[0] >= at]

    def slots(self) -> int:
        """Count what is assigned, without the drivers."""
        return sum(unit.id.startswith("slot-") for units in self.now.values() for unit in units)


def answered(loss: Loss, appeared: Iterable[tuple[float, HostName, Held]]) -> float | None:
    """Return when the last of a lost host's units was published elsewhere; None while one is missing.

    A slot goes on under its own name. A driver takes its whole tier along: that is answered when all of the next incarnation is published,
    which may have begun before this loss.
    """
    elsewhere = [(at, unit) for at, host, unit in appeared if host != loss.host]
    times: list[float] = []
    for lost in loss.units:
        same = [at for at, unit in elsewhere if unit.id == lost.id and at >= loss.at]
        later = [
            (at, unit)
            for at, unit in elsewhere
            if unit.tenant == lost.tenant and unit.incarnation > lost.incarnation
        ]
        if same:
            times.append(min(same))
        elif later:
            following = min(unit.incarnation for _, unit in later)
            first: dict[UnitId, float] = {}
            for at, unit in later:
                if unit.incarnation == following:
                    first[unit.id] = min(at, first.get(unit.id, at))
            times.append(max(loss.at, *first.values()))
        else:
            return None
    return max(times, default=loss.at)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
