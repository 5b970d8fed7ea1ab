"""Choose the processors of each unit on a host with `cores: own`. Pure; `cpusets` calls it.

A unit with a whole number of cores as its quantum gets as many processors for itself. The other
units share the remaining processors. A unit keeps its processors. If the quanta fit the host, there
are enough processors: the whole quanta, plus the sum of the others rounded up. Otherwise the last
units share.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice_ops.model.ids import UnitId

DIGITS = 6
"""The decimal digits to which quanta are added up, so that ten times 0.1 is one core."""


@dataclass(frozen=True)
class Division:
    """The processors of all units."""

    own: Mapping[UnitId, frozenset[int]]
    """The processors that a unit has for itself."""
    shared: frozenset[int]
    """The processors that the other units share: the remaining ones, or all if none remain."""
    crowded: tuple[UnitId, ...]
    """Units with a whole quantum that share, because there are too few processors."""

    def processors_of(self, unit: UnitId) -> frozenset[int]:
        """Return the processors that a unit may use."""
        return self.own.get(unit, self.shared)


def divide(
    processors: frozenset[int], current: Mapping[UnitId, frozenset[int]], quanta: Mapping[UnitId, float]
) -> Division:
    """Divide processors among units.

    `current` are the processors that units have now. `quanta` are the units' cores, in the order of
    the units' starts.
    """
    whole = {unit: int(cpu) for unit, cpu in quanta.items() if cpu == int(cpu)}
    for_others = math.ceil(round(sum(cpu for unit, cpu in quanta.items() if unit not in whole), DIGITS))
    own = _kept(processors, current, whole)
    for unit, count in whole.items():
        free = processors.difference(*own.values())
        if unit not in own and len(free) - count >= for_others:
            own[unit] = _adjacent(free, count)
    left = processors.difference(*own.values())
    sharing = len(own) < len(quanta)
    crowded = (unit for unit in whole if unit not in own or (sharing and not left))
    return Division(own, left or processors, tuple(crowded))


def _kept(
    processors: frozenset[int], current: Mapping[UnitId, frozenset[int]], whole: Mapping[UnitId, int]
) -> dict[UnitId, frozenset[int]]:
    """Return the units that have the right number of processors already, for themselves.

    Units that use all processors, because too few are left, do not count as users.
    """
    everything = frozenset[int]().union(*current.values())
    kept: dict[UnitId, frozenset[int]] = {}
    # A unit that has all processors, shared with others, comes last.
    for unit in sorted(whole, key=lambda unit: len(current.get(unit, ()))):
        own = current.get(unit, frozenset())
        taken = [
            numbers
            for other, numbers in current.items()
            if other != unit and (other in kept or numbers != everything)
        ]
        if len(own) == whole[unit] and own <= processors and own.isdisjoint(frozenset().union(*taken)):
            kept[unit] = own
    return kept


def _adjacent(free: frozenset[int], count: int) -> frozenset[int]:
    """Return `count` processors with consecutive numbers, from the shortest run that is long
    enough.

    Without such a run, return the lowest numbers.
    """
    runs = [run for run in _runs(sorted(free)) if len(run) >= count]
    return frozenset(min(runs, key=len, default=sorted(free))[:count])


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Split sorted numbers into runs of consecutive numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
