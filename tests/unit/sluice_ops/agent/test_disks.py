"""Disk space of a unit's files, with real processes that write real files."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import Start
from sluice_ops.agent.watch.disks import LOOK_SECONDS, Disks
from tests.unit.sluice_ops.agent.conftest import end, only_unit, run_command, until
from tests.unit.sluice_ops.agent.test_reconcile import slot

FILLS = (
    "/bin/sh",
    "-c",
    "head -c 3000000 /dev/zero > scratch/shuffle; mv scratch/shuffle scratch/all; sleep 60",
)


def written(folder: HostFolder) -> Path:
    file = folder.unit(slot().id).scratch / "all"
    until(file.exists)
    return file


def test_a_unit_over_its_disk_quantum_is_restarted_without_its_files(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *FILLS)
    unit = slot().model_copy(update={"quantum": slot().quantum.model_copy(update={"disk": 2})})
    process_control.do(Start(unit))
    file = written(folder)
    disks = Disks(process_control)
    (folder.unit(unit.id).path / "log.1").write_bytes(bytes(1000))
    assert disks.measure(process_control.find())
    assert disks.used_bytes[unit.id] > 2_900_000
    until(lambda: not only_unit(process_control).alive)
    reason = only_unit(process_control).exit or ""
    assert "(its files took 3 MiB of the disk: quantum.disk is 2m)" in reason
    run_command(monkeypatch, "/bin/sh", "-c", "exit 3")
    process_control.do(Start(unit, restarts=1))
    assert not file.exists()
    assert not (folder.unit(unit.id).path / "log.1").exists()
    until(lambda: not only_unit(process_control).alive)
    assert (only_unit(process_control).exit or "").startswith("exit code 3"), (
        "the new end does not repeat the reason of the earlier one"
    )


def test_a_stopping_unit_keeps_its_grace_over_its_disk_quantum(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *FILLS)
    unit = slot().model_copy(update={"quantum": slot().quantum.model_copy(update={"disk": 2})})
    process_control.do(Start(unit))
    written(folder)
    (seen,) = process_control.find()
    assert not Disks(process_control).measure([replace(seen, stopping_at=1.0)])
    assert only_unit(process_control).alive


def test_a_unit_within_its_limit_or_without_a_limit_continues(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *FILLS)
    for disk in (None, 20):
        unit = slot().model_copy(update={"quantum": slot().quantum.model_copy(update={"disk": disk})})
        process_control.do(Start(unit))
        written(folder)
        assert not Disks(process_control).measure(process_control.find())
        assert only_unit(process_control).alive
        end(process_control, folder)


def test_disk_space_is_measured_once_per_look_seconds(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *FILLS)
    now = 100.0
    monkeypatch.setattr("sluice_ops.agent.watch.disks.time.monotonic", lambda: now)
    disks = Disks(process_control)
    disks.measure([])
    process_control.do(Start(slot()))
    monkeypatch.undo()
    written(folder)
    monkeypatch.setattr("sluice_ops.agent.watch.disks.time.monotonic", lambda: now)
    now += LOOK_SECONDS - 1
    disks.measure(process_control.find())
    assert disks.used_bytes == {}
    now += 1
    disks.measure(process_control.find())
    assert list(disks.used_bytes) == [slot().id]
    monkeypatch.undo()


def test_a_file_with_several_names_counts_once(folder: HostFolder) -> None:
    unit = folder.unit(slot().id)
    unit.make()
    (unit.scratch / "one.sst").write_bytes(bytes(1 << 20))
    alone = unit.disk_bytes()
    os.link(unit.scratch / "one.sst", unit.scratch / "snapshot.sst")
    (unit.scratch / "elsewhere").symlink_to("/usr")
    assert (1 << 20) <= alone <= unit.disk_bytes() <= alone + 8192
