"""The agent's sleep between two rounds: the end of a unit's process ends it, also one that came before it fell asleep."""

import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.loop import Agent
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import Start
from tests.unit.sluice_ops.agent.conftest import only, runs, until
from tests.unit.sluice_ops.agent.test_reconcile import driver

SECONDS = 2.0


@pytest.fixture
def agent(process_control: ProcessControl, folder: HostFolder) -> Agent:
    nothing = cast("Any", SimpleNamespace(on_wake=lambda _: None, look=lambda: False))
    parts = dict.fromkeys(("channel", "presence", "neighbours", "disks", "heartbeats"), nothing)
    return Agent(
        **parts, process_control=process_control, folder=folder, reboot=lambda _: None, reclaim_seconds=0
    )


@pytest.fixture
def unit(process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the main process of a unit that was found alive."""
    runs(monkeypatch, sys.executable, "-c", "import time; time.sleep(60)")
    process_control.do(Start(driver()))
    until(lambda: only(process_control).pid)
    return only(process_control).pid or 0


def slept(agent: Agent) -> float:
    begun = time.monotonic()
    agent._sleep(begun + SECONDS)
    return time.monotonic() - begun


def test_it_sleeps_while_its_units_run(agent: Agent, unit: int) -> None:
    assert unit
    assert slept(agent) >= SECONDS


def test_the_end_of_a_unit_between_its_look_and_its_sleep_is_not_missed(
    agent: Agent, process_control: ProcessControl, unit: int
) -> None:
    os.kill(unit, signal.SIGKILL)
    until(lambda: not process_control.watched())
    assert slept(agent) < 1, "no process is left that would wake it"
    assert not only(process_control).alive
    assert slept(agent) >= SECONDS, "it is written down"
