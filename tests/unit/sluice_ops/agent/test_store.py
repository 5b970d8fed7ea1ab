"""The files of an agent survive a power loss. A damaged file is logged once and breaks nothing."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice_ops.agent.host.store import ENDED_LOGS, HostFolder, RebootRecord, UnitFolder, UnitRecord
from sluice_ops.model.assignment import Assignment
from sluice_ops.model.ids import UnitId
from sluice_ops.queries.unit_logs import tail, unit_logs
from sluice_ops.site.files import write_private
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

DAMAGES = (b"", b"\0" * 64, b'{"epoch": ', b"\xff\xfe")


def started(folder: HostFolder, record: UnitRecord) -> None:
    unit = folder.unit(record.unit.id)
    unit.make()
    unit.write_record(record)


def test_a_file_is_synced_before_its_name_and_its_name_before_its_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def sync(descriptor: int) -> None:
        synced = Path(f"/proc/self/fd/{descriptor}").resolve()
        content = synced.read_text() if synced.is_file() else target.read_text()
        done.append(f"{'folder' if synced.is_dir() else 'file'} {content}, known as {target.read_text()}")

    monkeypatch.setattr(os, "fsync", sync)
    target = tmp_path / "file"
    target.write_text("old")
    write_private(target, "new")
    assert done == ["file new, known as old", "folder new, known as new"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    target = tmp_path / "file"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        write_private(target, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_logged_once_until_it_is_readable_again(folder: HostFolder, damage: bytes) -> None:
    reboot_file = folder.path / "reboot.json"
    for _ in range(2):
        reboot_file.write_bytes(damage)
        with capture_logs() as log_lines:
            assert [folder.reboot() for _ in range(3)] == [None] * 3
        assert [line["file"] for line in log_lines] == [str(reboot_file)]
        folder.write_reboot(RebootRecord(asked="op-1", boot="b"))
        assert folder.reboot() is not None


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_an_assignment_running_units_run_on_and_ending_units_end(
    folder: HostFolder, damage: bytes
) -> None:
    folder.write_assignment(Assignment(epoch=7, units=(slot(),)))
    started(folder, UnitRecord(unit=slot(), boot="b", started_at=1.0))
    started(folder, UnitRecord(unit=driver(), boot="b", started_at=1.0, stopping_at=2.0))
    (folder.path / "assignment.json").write_bytes(damage)
    assert folder.assignment() == Assignment(epoch=0, units=(slot(),)), (
        "epoch 0, so any controller may replace the assignment"
    )


@pytest.mark.parametrize("damage", [b"", b"\0" * 32, b"abc", b"\xff"])
def test_a_damaged_credential_is_replaced_and_kept(folder: HostFolder, damage: bytes) -> None:
    before = folder.credential()
    assert folder.credential() == before
    (folder.path / "credential").write_bytes(damage)
    after = folder.credential()
    assert after.password not in {before.password, damage.decode(errors="replace")}
    assert folder.credential() == after


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, b"12 x", b"12", b"\xff \xff"])
def test_damaged_process_numbers_are_none(folder: HostFolder, damage: bytes) -> None:
    unit = folder.unit(slot().id)
    unit.make()
    for name in ("pid", "session", "exit"):
        (unit.path / name).write_bytes(damage)
    assert (unit.main(), unit.session()) == (None, None)


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, b"\xff"])
def test_a_damaged_name_of_a_group_is_none(folder: HostFolder, damage: bytes) -> None:
    folder.write_group(folder.path)
    (folder.path / "group").write_bytes(damage)
    assert folder.group() is None


def with_logs(folder: HostFolder, number: int, log: str, rotated: str | None = None) -> UnitFolder:
    unit = folder.unit(UnitId(f"slot-counts-{number}-0"))
    unit.make()
    unit.log.write_text(log)
    if rotated is not None:
        (unit.path / "log.1").write_text(rotated)
    return unit


def test_the_last_line_may_be_in_the_rotated_log(folder: HostFolder) -> None:
    assert with_logs(folder, 1, "", "a cause\n").last_line() == "a cause"
    assert with_logs(folder, 1, "\n---\n", "a cause\n").last_line() == "a cause"
    assert with_logs(folder, 1, "the end\n", "a cause\n").last_line() == "the end"


def test_the_last_line_is_no_place_in_code(folder: HostFolder) -> None:
    frames = (
        "\tat org.apache.spark.DAGScheduler.$anonfun$x$1$adapted(DAGScheduler.scala:1367)\n\t... 9 more\n"
    )
    assert with_logs(folder, 1, f"SparkException: stopped\n{frames}").last_line() == "SparkException: stopped"


def test_both_logs_of_a_removed_unit_stay(folder: HostFolder) -> None:
    with_logs(folder, 1, "later\n", "earlier\n").remove()
    path = unit_logs(folder.path.parent.parent)["h1/slot-counts-1-0"]
    assert list(tail(path, 10)) == ["earlier\n", "later\n"]
    with_logs(folder, 1, "of another start\n").remove()
    assert list(tail(path, 10)) == ["of another start\n"]


def test_the_logs_of_twenty_ended_units_stay(folder: HostFolder) -> None:
    for number in range(ENDED_LOGS + 5):
        unit = with_logs(folder, number, "later\n", "earlier\n")
        os.utime(unit.log, (number, number))
        unit.remove()
    kept = {path.name for path in (folder.path / "ended").iterdir()}
    names = [f"slot-counts-{number}-0.log" for number in range(5, ENDED_LOGS + 5)]
    assert kept == {*names, *(f"{name}.1" for name in names)}
