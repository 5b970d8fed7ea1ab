"""Each requested reboot runs once, and a withdrawn request runs no reboot."""

from pathlib import Path

import pytest

from sluice_ops.agent.host import reboots
from sluice_ops.agent.host.processes import boot_id
from sluice_ops.agent.host.reboots import Rebooter, boot_of, is_reboot_needed
from sluice_ops.agent.host.store import HostFolder, RebootRecord


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    reboots_done: list[str] = []
    monkeypatch.setattr(Rebooter, "_run", lambda _, record: reboots_done.append(record.asked))
    return reboots_done


def rebooter(folder: HostFolder) -> Rebooter:
    return Rebooter(folder, "h1", ("true",))


def test_a_reboot_runs_once_for_each_id_also_with_the_next_agent(
    folder: HostFolder, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebooter(folder)("op-1")
    rebooter(folder)("op-1")
    assert ran == ["op-1"]
    monkeypatch.setattr(reboots, "boot_id", lambda: "another")
    again = rebooter(folder)
    again.check_reboot()
    again("op-1")
    assert ran == ["op-1"]
    record = folder.reboot()
    assert record is not None
    assert record.done


def test_a_reboot_that_did_not_happen_runs_only_while_it_is_requested(
    folder: HostFolder, ran: list[str]
) -> None:
    folder.write_reboot(RebootRecord(asked="op-1", boot=boot_id()))
    after = rebooter(folder)
    after.check_reboot()
    assert ran == [], "the change may be undone, and the host in use again"
    after("op-1")
    assert ran == ["op-1"]


def test_a_reboot_that_cannot_be_recorded_waits(
    folder: HostFolder, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(HostFolder, "write_reboot", full)
        rebooter(folder)("op-1")
    assert ran == []
    rebooter(folder)("op-1")
    assert ran == ["op-1"]


def test_the_boot_changes_with_the_kernels_and_with_a_simulated_reboot() -> None:
    asked = RebootRecord(asked="op-1", boot=boot_id())
    assert boot_of(None) == boot_of(asked) == boot_id()
    on_one_kernel = boot_of(asked.model_copy(update={"done": True}))
    assert on_one_kernel == f"{boot_id()}/op-1"
    assert boot_of(RebootRecord(asked="op-1", boot="the one before", done=True)) == boot_id()


def test_a_file_of_the_machine_says_that_a_reboot_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reboots, "SENTINEL", tmp_path / "reboot-required")
    assert not is_reboot_needed()
    (tmp_path / "reboot-required").touch()
    assert is_reboot_needed()


@pytest.mark.usefixtures("ran")
def test_a_machine_that_lost_a_part_over_a_reboot_is_not_sound(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(processors: int, memory: int) -> None:
        monkeypatch.setattr(reboots, "capacity", lambda: (processors, memory))

    machine(8, 16_000)
    rebooter(folder)("op-1")
    machine(8, 8_000)
    assert rebooter(folder).lost_capacity() == (), "the reboot is not done"
    monkeypatch.setattr(reboots, "boot_id", lambda: "another")
    after = rebooter(folder)
    after.check_reboot()
    (finding,) = after.lost_capacity()
    assert "has 8 processors and 8,000 MiB; before the reboot it had 8 and 16,000 MiB" in finding
    machine(6, 16_000)
    assert len(after.lost_capacity()) == 1
    for processors, memory in ((8, 15_900), (16, 32_000)):
        machine(processors, memory)
        assert after.lost_capacity() == (), "another kernel keeps some memory; more is welcome"


def test_the_record_of_an_older_agent_has_no_capacity_to_compare(folder: HostFolder) -> None:
    (folder.path / "reboot.json").write_text('{"asked": "op-1", "boot": "the one before", "done": true}')
    assert rebooter(folder).lost_capacity() == ()
