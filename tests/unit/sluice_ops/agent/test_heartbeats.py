"""Hung units of a host are ended; the tests use real processes and really stop them."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice_ops.agent.host.processes import children
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import RequestStop, Start
from sluice_ops.agent.watch.heartbeats import Heartbeats
from sluice_ops.agent.watch.liveness import LIMITS, LOOK_SECONDS, Activity
from sluice_ops.model.assignment import UnitKind
from tests.unit.sluice_ops.agent.conftest import only_unit, run_command, until
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

BEATS = """
count=0; ./java -c 'while :; do sleep 0.05; done' &
while :; do count=$((count+1)); [ -e silent ] || echo "$count $count" > scratch/heartbeat; sleep 0.1; done
"""
MARGIN = 4.0
"""Tolerance for a busy machine. Unit: seconds."""


@pytest.fixture
def started(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> Heartbeats:
    """Start a driver with a heartbeat, and a child process with the name of its JVM."""
    unit = folder.unit(driver().id)
    unit.path.mkdir(parents=True)
    shutil.copy("/bin/sh", unit.path / "java")
    run_command(monkeypatch, "/bin/sh", "-c", BEATS)
    process_control.do(Start(driver()))
    until((unit.scratch / "heartbeat").exists)
    until(lambda: jvm(process_control))
    return Heartbeats(process_control)


def jvm(process_control: ProcessControl) -> int | None:
    unit = only_unit(process_control)
    assert unit.pid is not None
    names = children(unit.pid, process_control.members[unit.unit.id])
    return next((pid for pid, name in names.items() if name == "java"), None)


def watch(
    heartbeats: Heartbeats, seconds: float, on_each_look: Callable[[], object] = lambda: None
) -> float | None:
    """Look as the agent does; return the seconds until a unit was ended, or None."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        on_each_look()
        if heartbeats.check():
            return time.monotonic() - begun
        time.sleep(LOOK_SECONDS)
    return None


@pytest.mark.parametrize("part", ["Python", "JVM"])
def test_a_driver_with_a_stopped_process_is_ended_with_the_reason(
    started: Heartbeats, process_control: ProcessControl, part: str
) -> None:
    assert watch(started, 2.0) is None
    pid = only_unit(process_control).pid if part == "Python" else jvm(process_control)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    if part == "JVM":  # then Python's count of the JVM's answers stands still
        (Path(process_control.heartbeat(driver().id)).parents[1] / "silent").touch()
    took = watch(started, LIMITS[Activity.STOPPED] + MARGIN)
    assert took is not None, "the driver hangs"
    until(lambda: not only_unit(process_control).alive)
    reason = only_unit(process_control).exit or ""
    assert f"its driver's {part} was stopped; its agent ended it" in reason
    assert "hung since " in reason
    assert started.ended[UnitKind.DRIVER] == 1


def test_a_driver_that_sleeps_for_ever_is_ended_later(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/sh", "-c", "echo 1 1 > scratch/heartbeat; exec sleep 100")
    process_control.do(Start(driver()))
    until((folder.unit(driver().id).scratch / "heartbeat").exists)
    time.sleep(0.2)
    process_control.find()
    took = watch(Heartbeats(process_control), LIMITS[Activity.STILL] + MARGIN)
    assert took is not None
    assert took > LIMITS[Activity.STILL] - LOOK_SECONDS
    until(lambda: not only_unit(process_control).alive)
    assert "its driver's Python stands still" in (only_unit(process_control).exit or "")


def test_a_silent_but_busy_driver_has_more_time(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/sh", "-c", "echo 1 1 > scratch/heartbeat; while :; do :; done")
    process_control.do(Start(driver()))
    until((folder.unit(driver().id).scratch / "heartbeat").exists)
    process_control.find()
    assert watch(Heartbeats(process_control), LIMITS[Activity.STILL] + 2) is None


def test_a_driver_without_a_heartbeat_is_not_judged(
    process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/sleep", "100")
    process_control.do(Start(driver()))
    (seen,) = process_control.find()
    assert seen.pid is not None
    os.kill(seen.pid, signal.SIGSTOP)
    assert watch(Heartbeats(process_control), LIMITS[Activity.STOPPED] + 1) is None, (
        "the driver is starting, or an older version started it"
    )


def test_a_stopping_driver_keeps_its_grace(started: Heartbeats, process_control: ProcessControl) -> None:
    pid = only_unit(process_control).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    process_control.do(RequestStop(driver().id, decommission=False))
    process_control.find()
    assert watch(started, LIMITS[Activity.STOPPED] + 1) is None


def test_an_executor_that_is_stopped_is_ended_alone(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = folder.unit(slot().id)
    unit.path.mkdir(parents=True)
    shutil.copy("/bin/sh", unit.path / "java")
    run_command(
        monkeypatch, "/bin/sh", "-c", "./java -c 'while :; do sleep 0.05; done' & while :; do sleep 0.1; done"
    )
    process_control.do(Start(slot()))
    until(lambda: jvm(process_control))
    heartbeats, executor = Heartbeats(process_control), jvm(process_control)
    assert executor is not None
    assert watch(heartbeats, 2.0) is None, "the executor sleeps most of the time"
    os.kill(executor, signal.SIGSTOP)
    assert watch(heartbeats, LIMITS[Activity.STOPPED] + MARGIN) is not None
    until(lambda: jvm(process_control) is None)
    assert only_unit(process_control).alive, "the Worker starts another executor"
    assert heartbeats.ended[UnitKind.SLOT] == 1
