"""Which processors each unit has on a host whose units have cores of their own. Pure; called by `sluice_ops.agent.limits.cpusets`.

Whoever has a whole number of cores as its quantum gets as many processors, and nobody else on them; the others share what is left. A unit
keeps what it has. On a host that is not over-full that always comes out even: the whole numbers, and the sum of the others rounded up, are
no more than its processors. On one that is, who comes last shares.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice_ops.model.ids import UnitId

DIGITS = 6
"""So exactly quanta are added up: ten times 0.1 is one core."""


@dataclass(frozen=True)
class Division:
    """Which processors the units have."""

    own: Mapping[UnitId, frozenset[int]]
    shared: frozenset[int]
    """What the others share: what is left, or all processors if nothing is."""
    crowded: tuple[UnitId, ...]
    """Who should have processors to itself, and has not: there are too few."""

    def of(self, unit: UnitId) -> frozenset[int]:
        """Return the processors that a unit may use."""
        return self.own.get(unit, self.shared)


def divide(
    processors: frozenset[int], has: Mapping[UnitId, frozenset[int]], quanta: Mapping[UnitId, float]
) -> Division:
    """Divide processors among units, which have quanta of so many cores, in the order in which they came."""
    whole = {unit: int(cpu) for unit, cpu in quanta.items() if cpu == int(cpu)}
    for_others = math.ceil(round(sum(cpu for unit, cpu in quanta.items() if unit not in whole), DIGITS))
    own = _kept(processors, has, whole)
    for unit, number in whole.items():
        free = processors.difference(*own.values())
        if unit not in own and len(free) - number >= for_others:
            own[unit] = _together(free, number)
    left = processors.difference(*own.values())
    sharing = len(own) < len(quanta)
    crowded = (unit for unit in whole if unit not in own or (sharing and not left))
    return Division(own, left or processors, tuple(crowded))


def _kept(
    processors: frozenset[int], has: Mapping[UnitId, frozenset[int]], whole: Mapping[UnitId, int]
) -> dict[UnitId, frozenset[int]]:
    """Return who has its number of processors already, and nobody beside it but units that share all for want of others."""
    everything = frozenset[int]().union(*has.values())
    kept: dict[UnitId, frozenset[int]] = {}
    for unit in sorted(
        whole, key=lambda unit: len(has.get(unit, ()))
    ):  # who has all of them, besides others, comes last
        mine = has.get(unit, frozenset())
        beside = [
            numbers
            for other, numbers in has.items()
            if other != unit and (other in kept or numbers != everything)
        ]
        if len(mine) == whole[unit] and mine <= processors and mine.isdisjoint(frozenset().union(*beside)):
            kept[unit] = mine
    return kept


def _together(free: frozenset[int], number: int) -> frozenset[int]:
    """Take neighbours in the numbering, from the smallest gap that has so many; without one, the lowest numbers."""
    runs = [run for run in _runs(sorted(free)) if len(run) >= number]
    return frozenset(min(runs, key=len, default=sorted(free))[:number])


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for each in numbers:
        if runs and runs[-1][-1] + 1 == each:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs
