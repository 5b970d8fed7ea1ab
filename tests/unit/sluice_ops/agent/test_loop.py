"""The agent's sleep between two rounds: the end of a unit's process wakes the agent, even if the
process ended before the sleep began.
"""

import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice_ops.agent.host.checkup import Checkup
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.loop import Agent
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import Start
from sluice_ops.model.assignment import Observed
from sluice_ops.model.ids import HostName
from tests.unit.sluice_ops.agent.conftest import only_unit, run_command, until
from tests.unit.sluice_ops.agent.test_reconcile import driver

SECONDS = 2.0


def agent_of(process_control: ProcessControl, folder: HostFolder, **others: Any) -> Agent:
    """Return an agent whose parts, except `others`, are idle."""
    idle = cast(
        "Any",
        SimpleNamespace(
            on_wake=lambda _: None,
            check=lambda: False,
            starved={},
            modest={},
            busy_since=None,
            busy_part=None,
        ),
    )
    parts = dict.fromkeys(("channel", "presence", "neighbours", "disks", "heartbeats", "notices"), idle)
    return Agent(
        **{**parts, **others},
        process_control=process_control,
        folder=folder,
        reboot=lambda _: None,
        checkup=Checkup(None),
        reclaim_seconds=0,
    )


@pytest.fixture
def agent(process_control: ProcessControl, folder: HostFolder) -> Agent:
    return agent_of(process_control, folder)


@pytest.fixture
def unit(process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the main process of a running unit."""
    run_command(monkeypatch, sys.executable, "-c", "import time; time.sleep(60)")
    process_control.do(Start(driver()))
    until(lambda: only_unit(process_control).pid)
    return only_unit(process_control).pid or 0


def sleep_seconds(agent: Agent) -> float:
    begun = time.monotonic()
    agent._sleep(begun + SECONDS)
    return time.monotonic() - begun


def test_the_agent_sleeps_while_its_units_run(agent: Agent, unit: int) -> None:
    assert unit
    assert sleep_seconds(agent) >= SECONDS


def test_the_end_of_a_unit_between_look_and_sleep_is_not_missed(
    agent: Agent, process_control: ProcessControl, unit: int
) -> None:
    os.kill(unit, signal.SIGKILL)
    until(lambda: not process_control.watched())
    assert sleep_seconds(agent) < 1, "no process is left that would wake the agent"
    assert not only_unit(process_control).alive
    assert sleep_seconds(agent) >= SECONDS, "the end is recorded"


def test_the_agent_reports_what_ec2_announces(process_control: ProcessControl, folder: HostFolder) -> None:
    reports: list[Observed] = []
    presence = SimpleNamespace(report=reports.append)
    notices = SimpleNamespace(ends_at=1795594920.0, at_risk_since=1795593900.0)
    agent_of(process_control, folder, presence=presence, notices=notices)._report()
    (report,) = reports
    assert (report.ends_at, report.at_risk_since) == (1795594920.0, 1795593900.0)
    assert report.ending(HostName("ec2-1")) == "EC2 ends ec2-1 at 08:22:00 UTC"


def test_the_agent_reports_how_busy_its_host_is(process_control: ProcessControl, folder: HostFolder) -> None:
    reports: list[Observed] = []
    presence = SimpleNamespace(report=reports.append)
    notices = SimpleNamespace(ends_at=None, at_risk_since=None)
    neighbours = SimpleNamespace(starved={}, modest={}, busy_since=7.0, busy_part=0.9)
    agent_of(process_control, folder, presence=presence, notices=notices, neighbours=neighbours)._report()
    assert [(report.busy_since, report.busy_part) for report in reports] == [(7.0, 0.9)]


def test_an_agent_that_hung_is_reported_by_the_next_one(
    process_control: ProcessControl, folder: HostFolder
) -> None:
    reports: list[Observed] = []
    parts = {
        "presence": SimpleNamespace(report=reports.append),
        "notices": SimpleNamespace(ends_at=None, at_risk_since=None),
    }
    first = agent_of(process_control, folder, **parts)
    first._report()
    before = time.time()
    first._watchdog._give_up()  # the watchdog calls it before it ends the process
    agent_of(process_control, folder, **parts)._report()
    assert reports[0].agent_hung_at is None
    assert before <= (reports[1].agent_hung_at or 0.0) <= time.time()
