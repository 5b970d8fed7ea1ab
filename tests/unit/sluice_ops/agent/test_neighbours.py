"""What an agent measures of its units' processor time, and what it holds of them: from the kernel's counters, which are made up here."""

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
    """A kernel on which time passes as it is told to, on one core that is never idle, and one that always is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *units: Unit) -> None:
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
        self.seen = Neighbours(cast("Any", SimpleNamespace(processes=self.pid_of)))

    def pid_of(self, unit: UnitId) -> set[int]:
        return {number for number, each in enumerate(self.units) if each.id == unit}

    def passes(self, seconds: float, **parts: float) -> None:
        """Have all run and wait for parts of some time, with a look in each window."""
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
        self.seen.look([FoundUnit(unit, alive=True, others=0, started_at=1.0) for unit in self.units])


def test_a_unit_is_starved_after_a_minute_and_no_more_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot())
    machine.look()
    machine.passes(TURN_SECONDS - WINDOW_SECONDS, ran=0.2, waited=0.8)
    assert machine.seen.starved == {}
    machine.passes(WINDOW_SECONDS, ran=0.2, waited=0.8)
    (since,) = machine.seen.starved.values()
    machine.passes(TURN_SECONDS, ran=0.2, waited=0.8)
    assert machine.seen.starved == {slot().id: since}, "what is published stays as it is"
    assert machine.seen.waited[slot().id] == pytest.approx(0.8 * 2 * TURN_SECONDS)
    machine.passes(TURN_SECONDS, ran=1.0, waited=0.1)
    assert machine.seen.starved == {}


def test_a_unit_is_starved_on_its_own_processors_whatever_others_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, slot())
    machine.usable = {0, 1}
    machine.look()
    machine.passes(2 * TURN_SECONDS, ran=0.2, waited=0.8)
    assert machine.seen.starved == {}, "it could run on the other one"
    machine.usable = {0}
    machine.passes(TURN_SECONDS, ran=0.2, waited=0.8)
    assert machine.seen.starved.keys() == {slot().id}


def test_looks_in_between_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot())
    machine.look()
    machine.now += WINDOW_SECONDS / 2
    machine.threads[0] = CpuTime(0.0, 100.0)
    machine.look()
    assert machine.seen.waited == {}


def test_who_prepares_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot().model_copy(update={"quiet": True}))
    machine.look()
    machine.passes(3 * TURN_SECONDS, ran=0.1, waited=0.9)
    assert machine.seen.starved == {}


def test_a_unit_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, slot())
    machine.look()
    machine.passes(TURN_SECONDS, ran=0.2, waited=0.8)
    machine.units.clear()
    machine.passes(WINDOW_SECONDS, ran=0.0, waited=0.0)
    assert (machine.seen.starved, machine.seen.waited) == ({}, {})


def test_the_kernel_counts_what_threads_and_processors_do() -> None:
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
