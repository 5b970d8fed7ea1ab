"""Each requested reboot runs once, and a withdrawn request runs no reboot."""

import pytest

from sluice_ops.agent.host import reboots
from sluice_ops.agent.host.processes import boot_id
from sluice_ops.agent.host.reboots import Rebooter
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
