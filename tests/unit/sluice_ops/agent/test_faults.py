"""An agent injects the fault of a game day once, and continues what it stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sluice_ops.agent.host import faults
from sluice_ops.agent.host.faults import FROZEN_SECONDS, Faults
from sluice_ops.agent.host.processes import Process, is_stopped, live_process
from sluice_ops.agent.host.store import HostFolder, UnitFolder
from sluice_ops.model.assignment import FaultOrder
from sluice_ops.model.ids import UnitId
from tests.unit.sluice_ops.agent.conftest import until

UNIT = UnitId("driver-enrich-7")


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """Return the main process of a unit."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    main = live_process(child.pid)
    monkeypatch.setattr(UnitFolder, "main", lambda folder: main if folder.id == UNIT else None)
    yield child
    child.kill()
    child.wait()


def order(number: int, **fields: object) -> FaultOrder:
    return FaultOrder.model_validate({"id": f"op-{number}", "unit": UNIT, **fields})


def test_a_fault_is_injected_once_also_by_the_next_agent(
    folder: HostFolder, unit: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(folder).inject(order(1))
    assert unit.wait(5) == -signal.SIGKILL
    sent: list[int] = []
    monkeypatch.setattr(Process, "send", lambda _, number: sent.append(number))
    again = Faults(folder)
    again.inject(order(1))
    assert sent == []
    assert again.done is not None
    assert (again.done.id, again.done.error) == ("op-1", "")


def test_a_stopped_process_is_continued_also_by_the_next_agent(
    folder: HostFolder, unit: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(folder).inject(order(1, freezes=True))
    until(lambda: is_stopped(unit.pid))
    later = Faults(folder)
    later.thaw()
    assert is_stopped(unit.pid), "its time is not over"
    now = faults.time.monotonic()
    monkeypatch.setattr(faults.time, "monotonic", lambda: now + FROZEN_SECONDS + 1)
    later.thaw()
    monkeypatch.undo()
    until(lambda: not is_stopped(unit.pid))
    record = folder.fault()
    assert record is not None
    assert record.frozen is None


def test_the_next_fault_continues_what_the_last_one_stopped(
    folder: HostFolder, unit: "subprocess.Popen[bytes]"
) -> None:
    agent = Faults(folder)
    agent.inject(order(1, freezes=True))
    until(lambda: is_stopped(unit.pid))
    agent.inject(order(2, unit="driver-counts-1"))
    until(lambda: not is_stopped(unit.pid))
    assert agent.done is not None
    assert agent.done.error == "driver-counts-1 does not run there any more"


def test_the_agent_remembers_its_own_death_before_it_dies(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    remembered: list[str] = []

    def send(process: Process, number: int) -> None:
        record = folder.fault()
        remembered.append("" if record is None else record.done.id)
        sent.append((process.pid, number))

    monkeypatch.setattr(Process, "send", send)
    Faults(folder).inject(order(1, unit=None))
    assert sent == [(os.getpid(), signal.SIGKILL)]
    assert remembered == ["op-1"]


def test_a_fault_that_cannot_be_written_down_waits(
    folder: HostFolder, unit: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    agent = Faults(folder)
    with monkeypatch.context() as patch:
        patch.setattr(HostFolder, "write_fault", full)
        agent.inject(order(1))
    assert unit.poll() is None
    assert agent.done is None
    agent.inject(order(1))
    assert unit.wait(5) == -signal.SIGKILL
