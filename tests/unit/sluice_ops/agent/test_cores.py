"""The processors of each unit, for every order of starts and ends that hypothesis generates."""

import math

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.agent.limits.core_allocation import Division, divide
from sluice_ops.model.ids import UnitId

A, B, C, D = (UnitId(name) for name in "abcd")
CPUS = st.sampled_from([0.1, 0.5, 1.0, 1.5, 2.0, 3.0])
PROCESSORS = st.frozensets(st.integers(0, 12), min_size=1, max_size=8)
STARTS_AND_ENDS = st.lists(
    st.tuples(st.sampled_from([UnitId(name) for name in "abcdefg"]), CPUS), max_size=12
)
"""A running unit ends; any other unit starts."""


def processors_held(division: Division, quanta: dict[UnitId, float]) -> dict[UnitId, frozenset[int]]:
    """Return the processors that the kernel holds for each unit after a division."""
    return {unit: division.processors_of(unit) for unit in quanta}


class Host:
    """A host on which units start and end, as its agent divides the processors."""

    def __init__(self, processors: frozenset[int]) -> None:
        self.processors = processors
        self.quanta: dict[UnitId, float] = {}
        self.has: dict[UnitId, frozenset[int]] = {}

    def step(self, unit: UnitId, cpu: float) -> Division:
        if self.quanta.pop(unit, None) is None:
            self.quanta[unit] = cpu
        self.has.pop(unit, None)
        division = divide(self.processors, self.has, self.quanta)
        self.has = processors_held(division, self.quanta)
        return division

    @property
    def overfull(self) -> bool:
        return round(sum(self.quanta.values()), 6) > len(self.processors)


@given(PROCESSORS, STARTS_AND_ENDS)
def test_each_core_has_one_owner_and_running_owners_keep_theirs(
    processors: frozenset[int], steps: list[tuple[UnitId, float]]
) -> None:
    host, before = Host(processors), Division({}, processors, ())
    for unit, cpu in steps:
        division = host.step(unit, cpu)
        owned = [number for numbers in division.own.values() for number in numbers]
        assert len(owned) == len(set(owned))
        assert all(len(numbers) == host.quanta[unit_id] for unit_id, numbers in division.own.items())
        assert division.shared
        assert all(numbers <= processors for numbers in (division.shared, *division.own.values()))
        assert division.shared.isdisjoint(owned) or division.shared == processors, (
            "shared processors are the rest, or all"
        )
        assert all(
            division.own.get(unit_id) == numbers
            for unit_id, numbers in before.own.items()
            if unit_id != unit and unit_id in host.quanta
        )
        before = division


@given(PROCESSORS, STARTS_AND_ENDS)
def test_with_enough_cores_whole_units_are_alone_on_theirs(
    processors: frozenset[int], steps: list[tuple[UnitId, float]]
) -> None:
    host = Host(processors)
    for unit, cpu in steps:
        division = host.step(unit, cpu)
        if host.overfull:
            continue
        assert division.crowded == ()
        assert division.own.keys() == {
            unit_id for unit_id, number in host.quanta.items() if number.is_integer()
        }
        others = {unit_id: number for unit_id, number in host.quanta.items() if unit_id not in division.own}
        if others:
            assert len(division.shared) >= math.ceil(round(sum(others.values()), 6))
            assert division.shared.isdisjoint(frozenset().union(*division.own.values()))


@given(PROCESSORS, STARTS_AND_ENDS)
def test_the_next_agent_reads_the_division_from_the_kernel(
    processors: frozenset[int], steps: list[tuple[UnitId, float]]
) -> None:
    host = Host(processors)
    for unit, cpu in steps:
        before = host.step(unit, cpu)
        again = divide(processors, host.has, host.quanta)
        assert processors_held(again, host.quanta) == host.has
        assert again.crowded == before.crowded


@given(PROCESSORS, PROCESSORS, STARTS_AND_ENDS)
def test_a_unit_keeps_those_of_its_processors_that_still_exist(
    processors: frozenset[int], later: frozenset[int], steps: list[tuple[UnitId, float]]
) -> None:
    host, before = Host(processors), Division({}, processors, ())
    for unit, cpu in steps:
        before = host.step(unit, cpu)
    after = divide(later, host.has, host.quanta)
    assert all(after.processors_of(unit) <= later for unit in host.quanta)
    assert all(
        after.own[unit] == numbers
        for unit, numbers in before.own.items()
        if numbers <= later and numbers != processors
    )


def test_neighbours_are_taken_together_from_the_smallest_gap() -> None:
    taken = {A: frozenset({2}), B: frozenset({5})}
    division = divide(frozenset(range(12)), taken, {A: 1.0, B: 1.0, C: 2.0, D: 3.0})
    assert (division.own[C], division.own[D], division.shared) == ({0, 1}, {6, 7, 8}, {3, 4, 9, 10, 11})
    assert divide(frozenset({0, 2, 4}), {}, {A: 2.0}).own == {A: {0, 2}}, (
        "separate processors are better than none"
    )


def test_a_crowded_unit_gets_its_own_processors_when_some_are_free() -> None:
    processors, a, b = frozenset({0, 1, 2}), frozenset({0, 1}), frozenset({2})
    full = divide(processors, {A: a, B: b}, {A: 2.0, B: 1.0, C: 1.0})
    assert (full.own, full.processors_of(C), full.crowded) == ({A: a, B: b}, processors, (A, B, C)), (
        "C may run everywhere, so no unit is alone"
    )
    freed = divide(processors, {A: a, C: processors}, {A: 2.0, C: 1.0})
    assert (freed.own, freed.crowded) == ({A: a, C: b}, ())


def test_a_unit_that_does_not_fit_beside_parts_of_a_core_shares_with_them() -> None:
    division = divide(frozenset({0, 1}), {}, {A: 0.5, B: 1.0, C: 1.0})
    assert (division.own, division.shared, division.crowded) == ({B: {0}}, {1}, (C,))


def test_units_that_may_run_on_all_processors_are_divided() -> None:
    everywhere = dict.fromkeys((A, B, C), frozenset({0, 1, 2, 3}))
    division = divide(frozenset({0, 1, 2, 3}), everywhere, {A: 1.0, B: 2.0, C: 0.5})
    assert (division.own, division.shared) == ({A: {0}, B: {1, 2}}, {3})
