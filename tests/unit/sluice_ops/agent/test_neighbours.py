"""Processor time of units and the verdict on starvation, from made-up counters of the kernel."""

import os
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice_ops.agent.host.processes import CpuTime, allowed_processors, idle_times, thread_cpu_times
from sluice_ops.agent.units.reconcile import FoundUnit
from sluice_ops.agent.watch import neighbours
from sluice_ops.agent.watch.neighbours import Neighbours
from sluice_ops.agent.watch.starvation import TURN_SECONDS, WINDOW_SECONDS
from sluice_ops.model.assignment import Unit
from sluice_ops.model.ids import UnitId
from tests.unit.sluice_ops.agent.test_reconcile import slot


class Machine:
    """A kernel with a simulated clock: core 0 is never idle, and core 1 is always idle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *units: Unit, cpu_share: float = 1.0) -> None:
        self.now = 100.0
        self.units = list(units)
        self.threads: dict[int, CpuTime] = {}
        monkeypatch.setattr(neighbours.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(
            neighbours,
            "thread_cpu_times",
            lambda pids: {pid: spent for pid, spent in self.threads.items() if pid in pids},
        )
        self.usable = {0}
        monkeypatch.setattr(neighbours, "idle_times", lambda: {0: (0.0, self.now), 1: (self.now, self.now)})
        monkeypatch.setattr(neighbours, "allowed_processors", lambda _pids: frozenset(self.usable))
        process_control = cast("Any", SimpleNamespace(processes=self.pid_of))
        self.neighbours_view = Neighbours(process_control, cpu_share)

    def pid_of(self, unit_id: UnitId) -> set[int]:
        return {number for number, unit in enumerate(self.units) if unit.id == unit_id}

    def pass_time(self, seconds: float, **parts: float) -> None:
        """Let all units run and wait for these parts of the time; look once in each window."""
        for _ in range(round(seconds / WINDOW_SECONDS)):
            self.now += WINDOW_SECONDS
            for pid in range(len(self.units)):
                before = self.threads.get(pid, CpuTime(0.0, 0.0))
                self.threads[pid] = CpuTime(
                    before.ran + parts["ran"] * WINDOW_SECONDS,
                    before.waited + parts["waited"] * WINDOW_SECONDS,
                )
            self.look()

    def look(self) -> None:
        self.neighbours_view.measure(
            [FoundUnit(unit, alive=True, others=0, started_at=1.0) for unit in self.units]
        )


def test_on_a_shared_machine_a_unit_is_promised_a_part_of_its_quantum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, slot(), cpu_share=0.25)
    machine.pass_time(120, ran=0.24, waited=0.6)
    assert machine.neighbours_view.starved == {}
    machine.pass_time(120, ran=0.2, waited=0.6)
    assert list(machine.neighbours_view.starved) == [slot().id]


def test_a_unit_is_starved_after_a_minute_and_no_more_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot())
    machine.look()
    machine.pass_time(TURN_SECONDS - WINDOW_SECONDS, ran=0.2, waited=0.8)
    assert machine.neighbours_view.starved == {}
    machine.pass_time(WINDOW_SECONDS, ran=0.2, waited=0.8)
    (since,) = machine.neighbours_view.starved.values()
    machine.pass_time(TURN_SECONDS, ran=0.2, waited=0.8)
    assert machine.neighbours_view.starved == {slot().id: since}, "the published time stays"
    assert machine.neighbours_view.waited[slot().id] == pytest.approx(0.8 * 2 * TURN_SECONDS)
    machine.pass_time(TURN_SECONDS, ran=1.0, waited=0.1)
    assert machine.neighbours_view.starved == {}


def test_only_a_units_own_processors_count_for_its_starvation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, slot())
    machine.usable = {0, 1}
    machine.look()
    machine.pass_time(2 * TURN_SECONDS, ran=0.2, waited=0.8)
    assert machine.neighbours_view.starved == {}, "the unit could run on the other core"
    machine.usable = {0}
    machine.pass_time(TURN_SECONDS, ran=0.2, waited=0.8)
    assert machine.neighbours_view.starved.keys() == {slot().id}


def test_a_host_is_busy_after_a_minute_without_an_idle_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for units in ([slot()], []):
        machine = Machine(monkeypatch, *units)
        machine.look()
        machine.pass_time(TURN_SECONDS - WINDOW_SECONDS, ran=1.0, waited=0.1)
        assert machine.neighbours_view.busy_since is None
        machine.pass_time(WINDOW_SECONDS, ran=1.0, waited=0.1)
        assert machine.neighbours_view.busy_since is not None
        assert machine.neighbours_view.starved == {}, "its units have what they are promised"
        machine.usable = {0, 1}
        machine.pass_time(TURN_SECONDS, ran=1.0, waited=0.1)
        assert machine.neighbours_view.busy_since is None


def test_a_host_tells_the_busy_part_of_its_processors_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.look()
    assert machine.neighbours_view.busy_part is None
    machine.pass_time(WINDOW_SECONDS, ran=1.0, waited=0.0)
    assert machine.neighbours_view.busy_part == 1.0
    machine.usable = {0, 1}
    machine.pass_time(TURN_SECONDS - WINDOW_SECONDS, ran=1.0, waited=0.0)
    assert machine.neighbours_view.busy_part == 1.0, "a new part is told once a minute"
    machine.pass_time(WINDOW_SECONDS, ran=1.0, waited=0.0)
    assert machine.neighbours_view.busy_part == 0.5


def test_a_unit_that_asks_for_little_is_modest_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, slot(), cpu_share=0.25)
    machine.look()
    machine.pass_time(TURN_SECONDS - WINDOW_SECONDS, ran=0.1, waited=0.1)
    assert machine.neighbours_view.modest == {}
    machine.pass_time(WINDOW_SECONDS, ran=0.1, waited=0.1)
    assert machine.neighbours_view.modest.keys() == {slot().id}
    machine.pass_time(TURN_SECONDS, ran=0.2, waited=0.2)
    assert machine.neighbours_view.modest == {}, "a unit that waits for a processor asks for it"


def test_a_look_within_a_window_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot())
    machine.look()
    machine.now += WINDOW_SECONDS / 2
    machine.threads[0] = CpuTime(0.0, 100.0)
    machine.look()
    assert machine.neighbours_view.waited == {}


def test_a_quiet_unit_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot().model_copy(update={"quiet": True}))
    machine.look()
    machine.pass_time(3 * TURN_SECONDS, ran=0.1, waited=0.9)
    assert machine.neighbours_view.starved == {}


def test_a_removed_unit_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot())
    machine.look()
    machine.pass_time(TURN_SECONDS, ran=0.2, waited=0.8)
    machine.units.clear()
    machine.pass_time(WINDOW_SECONDS, ran=0.0, waited=0.0)
    assert (machine.neighbours_view.starved, machine.neighbours_view.waited) == ({}, {})


def test_the_kernel_counts_time_of_threads_and_processors() -> None:
    (mine, *_) = processors = allowed_processors([os.getpid(), 1 << 30])
    assert processors == os.sched_getaffinity(0)
    before, idle = thread_cpu_times([os.getpid()]), idle_times()[mine]
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    after = thread_cpu_times([os.getpid(), 1 << 30])
    assert sum(spent.ran for spent in after.values()) > sum(spent.ran for spent in before.values()) + 0.1
    later = idle_times()[mine]
    assert later[1] > idle[1]
    assert 0 <= later[0] - idle[0] <= later[1] - idle[1]
