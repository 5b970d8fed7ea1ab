"""What hangs on a host is ended, with real processes that are really stopped."""

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
from tests.unit.sluice_ops.agent.conftest import only, runs, until
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

BEATS = """
count=0; ./java -c 'while :; do sleep 0.05; done' &
while :; do count=$((count+1)); [ -e silent ] || echo "$count $count" > scratch/heartbeat; sleep 0.1; done
"""
MARGIN = 4.0
"""So much later it may be on a machine that does much else. Unit: seconds."""


@pytest.fixture
def started(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> Heartbeats:
    """Run a driver that beats, and a child that is called like its JVM."""
    unit = folder.unit(driver().id)
    unit.path.mkdir(parents=True)
    shutil.copy("/bin/sh", unit.path / "java")
    runs(monkeypatch, "/bin/sh", "-c", BEATS)
    process_control.do(Start(driver()))
    until((unit.scratch / "heartbeat").exists)
    until(lambda: jvm(process_control))
    return Heartbeats(process_control)


def jvm(process_control: ProcessControl) -> int | None:
    found = only(process_control)
    assert found.pid is not None
    names = children(found.pid, process_control.members[found.unit.id])
    return next((pid for pid, name in names.items() if name == "java"), None)


def watch(heartbeats: Heartbeats, seconds: float, also: Callable[[], object] = lambda: None) -> float | None:
    """Look as the agent does; return after how long something was ended."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        also()
        if heartbeats.look():
            return time.monotonic() - begun
        time.sleep(LOOK_SECONDS)
    return None


@pytest.mark.parametrize("part", ["Python", "JVM"])
def test_a_driver_of_which_a_part_is_stopped_is_ended_and_says_so(
    started: Heartbeats, process_control: ProcessControl, part: str
) -> None:
    assert watch(started, 2.0) is None
    pid = only(process_control).pid if part == "Python" else jvm(process_control)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    if part == "JVM":  # then Python's count of its answers stands still
        (Path(process_control.heartbeat(driver().id)).parents[1] / "silent").touch()
    took = watch(started, LIMITS[Activity.STOPPED] + MARGIN)
    assert took is not None, "it hangs"
    until(lambda: not only(process_control).alive)
    said = only(process_control).exit or ""
    assert f"its driver's {part} was stopped; its agent ended it" in said
    assert "hung since " in said
    assert started.ended[UnitKind.DRIVER] == 1


def test_a_driver_that_sleeps_for_ever_is_ended_later(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "/bin/sh", "-c", "echo 1 1 > scratch/heartbeat; exec sleep 100")
    process_control.do(Start(driver()))
    until((folder.unit(driver().id).scratch / "heartbeat").exists)
    time.sleep(0.2)
    process_control.find()
    took = watch(Heartbeats(process_control), LIMITS[Activity.STILL] + MARGIN)
    assert took is not None
    assert took > LIMITS[Activity.STILL] - LOOK_SECONDS
    until(lambda: not only(process_control).alive)
    assert "its driver's Python stands still" in (only(process_control).exit or "")


def test_who_is_silent_and_busy_has_its_time(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "/bin/sh", "-c", "echo 1 1 > scratch/heartbeat; while :; do :; done")
    process_control.do(Start(driver()))
    until((folder.unit(driver().id).scratch / "heartbeat").exists)
    process_control.find()
    assert watch(Heartbeats(process_control), LIMITS[Activity.STILL] + 2) is None


def test_without_a_heartbeat_nobody_is_judged(
    process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "/bin/sleep", "100")
    process_control.do(Start(driver()))
    (seen,) = process_control.find()
    assert seen.pid is not None
    os.kill(seen.pid, signal.SIGSTOP)
    assert watch(Heartbeats(process_control), LIMITS[Activity.STOPPED] + 1) is None, (
        "it starts, or an older version started it"
    )


def test_who_is_asked_to_end_is_left_the_time_for_it(
    started: Heartbeats, process_control: ProcessControl
) -> None:
    pid = only(process_control).pid
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
    runs(
        monkeypatch, "/bin/sh", "-c", "./java -c 'while :; do sleep 0.05; done' & while :; do sleep 0.1; done"
    )
    process_control.do(Start(slot()))
    until(lambda: jvm(process_control))
    heartbeats, executor = Heartbeats(process_control), jvm(process_control)
    assert executor is not None
    assert watch(heartbeats, 2.0) is None, "it sleeps most of the time"
    os.kill(executor, signal.SIGSTOP)
    assert watch(heartbeats, LIMITS[Activity.STOPPED] + MARGIN) is not None
    until(lambda: jvm(process_control) is None)
    assert only(process_control).alive, "its Worker starts another one"
    assert heartbeats.ended[UnitKind.SLOT] == 1
