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
from sluice_ops.agent.units.process_control import Hands
from sluice_ops.agent.units.reconcile import AskToEnd, Start
from sluice_ops.agent.watch.heartbeats import Heartbeats
from sluice_ops.agent.watch.liveness import LIMITS, LOOK_SECONDS, Standing
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
def started(hands: Hands, folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> Heartbeats:
    """Run a driver that beats, and a child that is called like its JVM."""
    unit = folder.unit(driver().id)
    unit.path.mkdir(parents=True)
    shutil.copy("/bin/sh", unit.path / "java")
    runs(monkeypatch, "/bin/sh", "-c", BEATS)
    hands.do(Start(driver()))
    until((unit.scratch / "heartbeat").exists)
    until(lambda: jvm(hands))
    return Heartbeats(hands)


def jvm(hands: Hands) -> int | None:
    found = only(hands)
    assert found.pid is not None
    names = children(found.pid, hands.members[found.unit.id])
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
    started: Heartbeats, hands: Hands, part: str
) -> None:
    assert watch(started, 2.0) is None
    pid = only(hands).pid if part == "Python" else jvm(hands)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    if part == "JVM":  # then Python's count of its answers stands still
        (Path(hands.heartbeat(driver().id)).parents[1] / "silent").touch()
    took = watch(started, LIMITS[Standing.STOPPED] + MARGIN)
    assert took is not None, "it hangs"
    until(lambda: not only(hands).alive)
    said = only(hands).exit or ""
    assert f"its driver's {part} was stopped; its agent ended it" in said
    assert "hung since " in said
    assert started.ended[UnitKind.DRIVER] == 1


def test_a_driver_that_sleeps_for_ever_is_ended_later(
    hands: Hands, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "/bin/sh", "-c", "echo 1 1 > scratch/heartbeat; exec sleep 100")
    hands.do(Start(driver()))
    until((folder.unit(driver().id).scratch / "heartbeat").exists)
    time.sleep(0.2)
    hands.find()
    took = watch(Heartbeats(hands), LIMITS[Standing.STILL] + MARGIN)
    assert took is not None
    assert took > LIMITS[Standing.STILL] - LOOK_SECONDS
    until(lambda: not only(hands).alive)
    assert "its driver's Python stands still" in (only(hands).exit or "")


def test_who_is_silent_and_busy_has_its_time(
    hands: Hands, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(monkeypatch, "/bin/sh", "-c", "echo 1 1 > scratch/heartbeat; while :; do :; done")
    hands.do(Start(driver()))
    until((folder.unit(driver().id).scratch / "heartbeat").exists)
    hands.find()
    assert watch(Heartbeats(hands), LIMITS[Standing.STILL] + 2) is None


def test_without_a_heartbeat_nobody_is_judged(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, "/bin/sleep", "100")
    hands.do(Start(driver()))
    (seen,) = hands.find()
    assert seen.pid is not None
    os.kill(seen.pid, signal.SIGSTOP)
    assert watch(Heartbeats(hands), LIMITS[Standing.STOPPED] + 1) is None, (
        "it starts, or an older version started it"
    )


def test_who_is_asked_to_end_is_left_the_time_for_it(started: Heartbeats, hands: Hands) -> None:
    pid = only(hands).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    hands.do(AskToEnd(driver().id, decommission=False))
    hands.find()
    assert watch(started, LIMITS[Standing.STOPPED] + 1) is None


def test_an_executor_that_is_stopped_is_ended_alone(
    hands: Hands, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = folder.unit(slot().id)
    unit.path.mkdir(parents=True)
    shutil.copy("/bin/sh", unit.path / "java")
    runs(
        monkeypatch, "/bin/sh", "-c", "./java -c 'while :; do sleep 0.05; done' & while :; do sleep 0.1; done"
    )
    hands.do(Start(slot()))
    until(lambda: jvm(hands))
    heartbeats, executor = Heartbeats(hands), jvm(hands)
    assert executor is not None
    assert watch(heartbeats, 2.0) is None, "it sleeps most of the time"
    os.kill(executor, signal.SIGSTOP)
    assert watch(heartbeats, LIMITS[Standing.STOPPED] + MARGIN) is not None
    until(lambda: jvm(hands) is None)
    assert only(hands).alive, "its Worker starts another one"
    assert heartbeats.ended[UnitKind.SLOT] == 1
