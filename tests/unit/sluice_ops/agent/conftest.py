"""A host's folder and its `ProcessControl`: real processes, without control groups and Spark."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_groups import NoContainers
from sluice_ops.agent.units import process_control as module
from sluice_ops.agent.units.commands import Installation
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import FoundUnit, Kill
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.ids import HostName

FACTS = HostFacts(name=HostName("h1"), address="127.0.1.1", zone="onprem", cpu=1, memory=1000)


@pytest.fixture
def folder(tmp_path: Path) -> HostFolder:
    host_folder = HostFolder(tmp_path, "h1")
    host_folder.make()
    return host_folder


@pytest.fixture
def process_control(folder: HostFolder) -> Iterator[ProcessControl]:
    control = new_process_control(folder)
    yield control
    end(control, folder)


def new_process_control(folder: HostFolder) -> ProcessControl:
    home = folder.path
    return ProcessControl(
        folder,
        NoContainers("a test", home, "h1"),
        Installation(home, home / "shared", home / "e", home / "s", "spark://nowhere:1", None, FACTS),
    )


def end(process_control: ProcessControl, folder: HostFolder) -> None:
    for unit in folder.units():
        process_control.do(Kill(unit.id))
    until(lambda: not any(unit.alive for unit in process_control.find()))
    process_control.find()  # reaps the last child process


def run_command(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(module, "command", lambda *_: list(words))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def only_unit(process_control: ProcessControl) -> FoundUnit:
    (unit,) = process_control.find()
    return unit
