"""`ProcessControl` with real processes and the agent's launch script, without control groups and
Spark.
"""

import json
import os
import signal
import sys

import pytest

from sluice_ops.agent.host.processes import Process, live_process
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.units import process_control as module
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import Kill, Remove, RequestStop, SetWeights, Start
from tests.unit.sluice_ops.agent.conftest import end, new_process_control, only_unit, run_command, until
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

SLEEPER = [
    sys.executable,
    "-c",
    "import subprocess, time; subprocess.Popen(['sleep', '60']); print('ready', flush=True); time.sleep(60)",
]


def test_a_unit_outlives_its_agent_and_is_adopted(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(driver()))
    until(lambda: only_unit(process_control).others == 1)
    adopted = only_unit(new_process_control(folder))
    assert adopted.alive
    assert adopted.pid == only_unit(process_control).pid
    assert os.getsid(adopted.pid or 0) != os.getsid(0), "the unit has a session of its own"


def test_killing_the_main_process_leaves_others_that_are_then_killed(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(driver()))
    until(lambda: only_unit(process_control).others == 1 and folder.unit(driver().id).last_line() == "ready")
    os.kill(only_unit(process_control).pid or 0, signal.SIGKILL)
    until(lambda: not only_unit(process_control).alive)
    ended = only_unit(process_control)
    assert ended.exit == "killed by signal 9: ready"
    assert ended.others == 1
    process_control.do(Kill(driver().id))
    until(lambda: only_unit(process_control).others == 0)


def test_a_killed_jvm_is_reported_without_the_notices_of_its_start(
    process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = "NOTE: Picked up JDK_JAVA_OPTIONS: --add-opens=java.base/java.nio=ALL-UNNAMED"
    run_command(monkeypatch, "/bin/sh", "-c", f"echo '{notice}' >&2; kill -9 $$")
    process_control.do(Start(driver()))
    until(lambda: not only_unit(process_control).alive)
    assert only_unit(process_control).exit == "killed by signal 9"


def test_an_exit_is_reported_with_its_code_and_last_line(
    process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/sh", "-c", "echo starting; echo no such topic >&2; exit 7")
    process_control.do(Start(driver()))
    until(lambda: not only_unit(process_control).alive)
    assert only_unit(process_control).exit == "exit code 7: no such topic"


def test_a_recycled_pid_is_not_mistaken_for_the_unit(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/true")
    process_control.do(Start(driver()))
    until(lambda: not only_unit(process_control).alive)
    me = live_process(os.getpid())
    assert me is not None
    for name in ("pid", "session"):
        (folder.unit(driver().id).path / name).write_text(f"{me.pid} {me.started - 1}")
    assert not only_unit(process_control).alive
    assert Process(me.pid, me.started).alive


def test_a_unit_of_an_earlier_boot_has_ended(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/true")
    process_control.do(Start(slot()))
    until(lambda: not only_unit(process_control).alive)
    unit = folder.unit(slot().id)
    record = unit.record()
    assert record is not None
    me = live_process(os.getpid())
    assert me is not None
    unit.write_record(record.model_copy(update={"boot": "another", "ended_at": None, "exit": None}))
    (unit.path / "pid").write_text(f"{me.pid} {me.started}")
    (unit.path / "exit").unlink()
    assert not only_unit(process_control).alive
    assert only_unit(process_control).exit == "ended when its host restarted"


def test_the_next_agent_knows_of_a_requested_stop(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/sh", "-c", "trap '' TERM PWR; echo deaf; while :; do sleep 1; done")
    process_control.do(Start(slot()))
    until(lambda: folder.unit(slot().id).last_line() == "deaf")
    process_control.do(RequestStop(slot().id, decommission=False))
    adopted = only_unit(new_process_control(folder))
    assert adopted.alive
    assert adopted.stopping_at is not None


def test_a_weight_is_kept_for_the_next_agent(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(slot(quiet=True)))
    process_control.do(SetWeights(slot()))
    assert only_unit(new_process_control(folder)).unit == slot()


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no unit start, because the disk is full."""

    def full(*_: object) -> list[str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "command", full)


def test_a_unit_that_cannot_start_is_reported_and_others_still_start(
    process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch)
    process_control.do(Start(slot()))
    assert "No space left on device" in process_control.troubles[slot().id]
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(slot()))
    assert process_control.troubles == {}


def test_the_trouble_of_a_unit_outside_the_assignment_is_forgotten(
    process_control: ProcessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch)
    process_control.do(Start(slot()))
    process_control.do(Start(driver()))
    process_control.forget_troubles({slot().id})
    assert process_control.troubles.keys() == {slot().id}


def test_a_unit_that_a_newer_version_has_started_is_adopted(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(driver()))
    record_file = folder.unit(driver().id).path / "unit.json"
    record = json.loads(record_file.read_text())
    record_file.write_text(
        json.dumps({**record, "colour": "blue", "unit": {**record["unit"], "colour": "blue"}})
    )
    assert only_unit(new_process_control(folder)).alive


def test_a_damaged_record_is_removed(process_control: ProcessControl, folder: HostFolder) -> None:
    unit = folder.unit(slot().id)
    for damage in (b'{"unit": ', b"\xff\xfe"):
        unit.make()
        (unit.path / "unit.json").write_bytes(damage)
        assert process_control.find() == []
        assert not unit.path.exists()


DAMAGES = (b"", b"\0" * 300, b'{"unit": ', b"\xff\xfe")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_of_a_running_unit_is_written_again(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(driver()))
    before = only_unit(process_control)
    (folder.unit(driver().id).path / "unit.json").write_bytes(damage)
    assert only_unit(process_control).pid == before.pid
    assert only_unit(new_process_control(folder)).pid == before.pid
    process_control.do(RequestStop(driver().id, decommission=False))
    assert only_unit(process_control).stopping_at is not None


@pytest.mark.parametrize("damaged_files", [("unit.json",), ("unit.json", "pid", "session")])
def test_a_unit_without_any_readable_record_is_ended_before_its_restart(
    process_control: ProcessControl,
    folder: HostFolder,
    monkeypatch: pytest.MonkeyPatch,
    damaged_files: tuple[str, ...],
) -> None:
    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(driver()))
    until(lambda: only_unit(process_control).others == 1)
    pids = process_control.processes(driver().id)
    for name in damaged_files:
        (folder.unit(driver().id).path / name).write_bytes(b"x y")
    killed: list[frozenset[int]] = []
    with monkeypatch.context() as patch:
        # The processes need some time to end.
        patch.setattr(module, "kill_all", lambda pids: killed.append(frozenset(pids)))
        after = new_process_control(folder)
        assert after.find() == []
        after.do(Start(driver()))
        assert killed == [pids, pids], "no second process was started"
        assert "have still to end" in after.troubles[driver().id]
    assert after.find() == []
    until(lambda: not after.processes(driver().id))
    assert after.find() == []
    assert not folder.unit(driver().id).path.exists()
    after.do(Start(driver()))
    assert only_unit(after).pid not in pids
    assert after.troubles == {}
    end(after, folder)


def test_a_process_that_cannot_be_killed_is_reported_and_agent_continues(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    run_command(monkeypatch, *SLEEPER)
    process_control.do(Start(driver()))
    (folder.unit(driver().id).path / "unit.json").write_bytes(b"")
    after = new_process_control(folder)
    with monkeypatch.context() as patch:
        patch.setattr(module, "kill_all", forbidden)
        assert after.find() == []
        assert "Operation not permitted" in after.troubles[driver().id]
    assert after.find() == []


def test_a_log_that_grows_is_cut_while_it_is_written(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice_ops.agent.host.store.LOG_BYTES", 1000)
    run_command(monkeypatch, "/bin/sh", "-c", "while :; do echo a line of some length; sleep 0.001; done")
    process_control.do(Start(slot()))
    unit = folder.unit(slot().id)
    until(lambda: unit.log.stat().st_size > 2000)
    process_control.cap_logs()
    assert unit.log.stat().st_size < 2000
    assert (unit.path / "log.1").stat().st_size > 2000
    until(lambda: unit.last_line().startswith("a line"))


def test_the_last_log_of_a_removed_unit_stays(
    process_control: ProcessControl, folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_command(monkeypatch, "/bin/sh", "-c", "echo last words")
    process_control.do(Start(slot()))
    until(lambda: not only_unit(process_control).alive)
    process_control.do(Remove(slot().id))
    assert process_control.find() == []
    assert (folder.path / "ended" / f"{slot().id}.log").read_text() == "last words\n"
