"""Compute when each loss was answered, from the assignments that the agents received. Pure.

A loss is answered when the lost units are assigned to other hosts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sluice_ops.model.ids import HostName, UnitId


@dataclass(frozen=True)
class AssignedUnit:
    """A unit in a host's assignment."""

    id: UnitId
    tenant: str
    incarnation: int


@dataclass(frozen=True)
class Published:
    """An assignment that ZooKeeper stored."""

    host: HostName
    at: float
    """The time at which ZooKeeper stored it, in seconds since 1970."""
    units: frozenset[AssignedUnit]


@dataclass(frozen=True)
class Loss:
    """The loss of a host: its time in seconds since 1970, and the host's units."""

    host: HostName
    at: float
    units: frozenset[AssignedUnit]

    @property
    def of_driver(self) -> bool:
        """Whether the host ran a driver, so that the whole tier is started again."""
        return any(unit.id.startswith("driver-") for unit in self.units)


@dataclass
class Board:
    """The current assignments, and the times at which each unit appeared on a host."""

    now: dict[HostName, frozenset[AssignedUnit]] = field(default_factory=dict)
    appeared: list[tuple[float, HostName, AssignedUnit]] = field(default_factory=list)

    def add(self, published: Published) -> None:
        """Record an assignment."""
        new = published.units - self.now.get(published.host, frozenset())
        self.now[published.host] = published.units
        self.appeared.extend((published.at, published.host, unit) for unit in new)

    def since(self, at: float) -> list[tuple[float, HostName, AssignedUnit]]:
        """Return the appearances at or after a time."""
        return [appearance for appearance in self.appeared if appearance[0] >= at]

    def slots(self) -> int:
        """Return the number of assigned slots."""
        return sum(unit.id.startswith("slot-") for units in self.now.values() for unit in units)


def answered_at(loss: Loss, appeared: Iterable[tuple[float, HostName, AssignedUnit]]) -> float | None:
    """Return when the last unit of a lost host was assigned to another host; None if one is not.

    A slot keeps its name on another host. The loss of a driver starts the whole tier again: this is
    answered when all units of the next incarnation are assigned, which may have begun before the
    loss.
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
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
