"""Network classes of units on a made-up tree.

No failure of the network division keeps an agent from starting.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice_ops.agent.host.store import HostFolder, UnitRecord
from sluice_ops.agent.limits import network, traffic_control
from sluice_ops.agent.limits.control_groups import NoContainers, installation_group
from sluice_ops.agent.limits.network import (
    NOT_ASKED,
    PRIORITIES,
    find_network,
    missing_requirement,
    open_network,
)
from sluice_ops.agent.limits.traffic_control import OTHERS, NotDividedError, priority
from sluice_ops.model.assignment import Unit
from sluice_ops.model.resources import Link
from tests.unit.sluice_ops.agent.test_reconcile import slot

LINK = Link(interface="eth7", mbit=1000)
INNER = NoContainers("this is a test", Path("/nowhere"), "h1")


class Divided:
    """The last division of the link."""

    def __init__(self) -> None:
        self.weights: dict[int, int] | None = None
        self.interface = ""
        self.broken = False

    def divide(self, link: Link, weights: Mapping[int, int]) -> None:
        if self.broken:
            message = "it is broken"
            raise NotDividedError(message)
        self.interface, self.weights = link.interface, dict(weights)

    def restore_queue(self, interface: str) -> None:
        assert interface == self.interface or self.weights is None
        self.weights = None


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Divided:
    division = Divided()
    monkeypatch.setattr(traffic_control, "divide", division.divide)
    monkeypatch.setattr(traffic_control, "restore_queue", division.restore_queue)
    monkeypatch.setattr(network, "_mounted", lambda: tmp_path / "tree")
    monkeypatch.setattr(network, "missing_requirement", lambda _link: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "rmdir", remove_group)
    HostFolder(tmp_path, "h1").make()
    return division


def remove_group(folder: Path) -> None:
    """Remove a folder as the kernel removes a group: with its files, unless the group has processes
    or child groups.
    """
    procs = folder / "cgroup.procs"
    if any(folder.glob("*/")) or (procs.exists() and procs.read_text()):
        raise OSError(16, "Device or resource busy")
    for file in folder.iterdir():
        file.unlink()
    os.rmdir(folder)  # noqa: PTH106 - Path.rmdir is replaced by this function


def group(home: Path, host: str = "h1") -> Path:
    return home / "tree" / installation_group(home) / host


def weighing(weight: int, number: int = 0, *, quiet: bool = False) -> Unit:
    unit = slot(number=number, quiet=quiet)
    return unit.model_copy(update={"quantum": unit.quantum.model_copy(update={"network": weight})})


def write_unit_record(home: Path, unit: Unit) -> None:
    folder = HostFolder(home, "h1").unit(unit.id)
    folder.path.mkdir(exist_ok=True)
    folder.write_record(UnitRecord(unit=unit, boot="", started_at=0.0))


def test_each_unit_has_a_class_by_its_weight_and_its_packets_carry_it(
    tmp_path: Path, divided: Divided
) -> None:
    containers, summary = open_network(tmp_path, "h1", LINK, INNER)
    assert summary == "eth7, 1000 mbit, divided by quantum.network"
    (joins,) = containers.admit(weighing(300))
    containers.admit(weighing(200, 1, quiet=True))
    assert divided.weights == {0x20: 300, 0x30: 40}
    assert joins == group(tmp_path) / slot().id / "cgroup.procs"
    assert joins.with_name(PRIORITIES).read_text() == f"eth7 {priority(0x20)}"
    containers.set_weights(weighing(200, 1))
    assert divided.weights == {0x20: 300, 0x30: 200}
    containers.remove(slot().id)
    containers.remove(slot().id)
    assert divided.weights == {0x30: 200}
    containers.admit(weighing(300, 2))
    assert divided.weights == {0x20: 300, 0x30: 200}, "a freed class number is used again"


def test_the_next_agent_reads_the_classes_of_running_units(tmp_path: Path, divided: Divided) -> None:
    units = [weighing(100, number) for number in range(3)]
    containers, _ = open_network(tmp_path, "h1", LINK, INNER)
    for unit in units:
        containers.admit(unit)
        write_unit_record(tmp_path, unit)
    containers.remove(units[0].id)
    HostFolder(tmp_path, "h1").unit(units[0].id).remove()
    before, divided.weights = divided.weights, None
    containers, _ = open_network(tmp_path, "h1", LINK, INNER)
    assert divided.weights == before == {0x30: 100, 0x40: 100}
    containers.admit(units[0])
    assert divided.weights == {0x20: 100, 0x30: 100, 0x40: 100}


def test_units_that_ran_before_the_division_get_a_class(
    tmp_path: Path, divided: Divided, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_unit_record(tmp_path, weighing(300))
    monkeypatch.setattr(NoContainers, "processes", lambda *_: frozenset({4711}))
    open_network(tmp_path, "h1", LINK, INNER)
    assert divided.weights == {0x20: 300}
    assert (group(tmp_path) / slot().id / "cgroup.procs").read_text() == "4711"


def test_a_unit_of_an_older_version_has_the_default_weight(tmp_path: Path, divided: Divided) -> None:
    unit = slot()
    fields = unit.model_dump()
    del fields["quantum"]["network"]
    write_unit_record(tmp_path, Unit.model_validate(fields))
    open_network(tmp_path, "h1", LINK, INNER)
    assert divided.weights == {0x20: 100}
    assert HostFolder(tmp_path, "h1").assignment().units == (unit,), "the unit counts as the same unit"


def test_closing_removes_the_division_only_when_no_unit_is_left(tmp_path: Path, divided: Divided) -> None:
    containers, _ = open_network(tmp_path, "h1", LINK, INNER)
    (joins,) = containers.admit(weighing(300))
    joins.write_text("4711")
    containers.close()
    assert divided.weights is not None
    joins.write_text("")
    ending = find_network(tmp_path, "h1", INNER)
    ending.remove(slot().id)
    ending.close()
    assert divided.weights is None
    assert not any((tmp_path / "tree").iterdir())
    ending.close()
    assert find_network(tmp_path, "h1", INNER) is INNER


def test_a_second_host_on_the_machine_is_refused_the_same_interface(tmp_path: Path, divided: Divided) -> None:
    open_network(tmp_path, "h1", LINK, INNER)
    HostFolder(tmp_path, "h2").make()
    containers, summary = open_network(tmp_path, "h2", LINK, INNER)
    assert containers is INNER
    assert divided.weights == {}, "the division of the first host stays"
    assert summary.startswith(
        f"eth7 is not divided: host h1 of {installation_group(tmp_path)} divides eth7 on this machine already"
    )
    assert not group(tmp_path, "h2").exists()
    _, summary = open_network(tmp_path, "h2", LINK.model_copy(update={"interface": "eth8"}), INNER)
    assert summary.startswith("eth8, ")
    assert divided.interface == "eth8"


def test_a_site_file_without_network_weights_restores_the_interfaces_queue(
    tmp_path: Path, divided: Divided
) -> None:
    containers, _ = open_network(tmp_path, "h1", LINK, INNER)
    (joins,) = containers.admit(weighing(300))
    joins.write_text("4711")
    assert open_network(tmp_path, "h1", None, INNER) == (INNER, NOT_ASKED)
    assert joins.with_name(PRIORITIES).read_text() == "eth7 0"
    joins.write_text("")
    assert open_network(tmp_path, "h1", None, INNER) == (INNER, NOT_ASKED)
    assert divided.weights is None
    assert not any((tmp_path / "tree").iterdir())


def test_a_failed_division_is_logged_once_and_units_still_start(tmp_path: Path, divided: Divided) -> None:
    containers, _ = open_network(tmp_path, "h1", LINK, INNER)
    divided.broken = True
    with capture_logs() as log_lines:
        assert containers.admit(weighing(300)) == ()
        containers.admit(weighing(300, 1))
        divided.broken = False
        assert len(containers.admit(weighing(300, 1))) == 1
    assert [(line["event"], line["error"]) for line in log_lines] == [
        ("dividing the link failed: units may send more or less than their share", "it is broken")
    ]


def test_a_missing_requirement_is_logged_and_the_agent_still_starts(
    tmp_path: Path, divided: Divided, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided.broken = True
    assert open_network(tmp_path, "h1", LINK, INNER) == (INNER, "eth7 is not divided: it is broken")
    monkeypatch.setattr(network, "missing_requirement", lambda _link: "there is no cable")
    with capture_logs() as log_lines:
        assert open_network(tmp_path, "h1", LINK, INNER) == (INNER, "eth7 is not divided: there is no cable")
    assert [line["event"] for line in log_lines] == ["the link is not divided; all units send as they can"]


@pytest.mark.parametrize(
    ("user", "controller_and_interface", "reason"),
    [
        (
            970,
            ("net_prio", "eth7"),
            (
                "user 970 may not divide the network: "
                "run the agent as root (`systemctl edit sluice-agent@…`, User=root)"
            ),
        ),
        (0, ("net_cls", "eth7"), "the kernel has no net_prio (CONFIG_CGROUP_NET_PRIO)"),
        (
            0,
            ("net_prio", "eth8"),
            "this machine has no interface eth7, but eth8: correct network.interface in the site file",
        ),
        (0, ("net_prio", "eth7"), "there is no tc"),
    ],
)
def test_each_missing_requirement_is_reported_with_its_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    controller_and_interface: tuple[str, str],
    reason: str,
) -> None:
    controller, interface = controller_and_interface

    def refuse(_interface: str) -> None:
        message = "there is no tc"
        raise NotDividedError(message)

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(traffic_control, "classes", refuse)
    (tmp_path / "cgroups").write_text(
        f"#subsys_name\thierarchy\tnum_cgroups\tenabled\n{controller}\t0\t1\t1\n"
    )
    (tmp_path / "class/net" / interface).mkdir(parents=True)
    assert missing_requirement(LINK, tmp_path, tmp_path) == reason


def test_a_mounted_controller_is_used_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(
        "cgroup /sys/fs/cgroup/net_cls,net_prio cgroup rw,nosuid,net_cls,net_prio 0 0\n"
    )
    assert network._mounted(tmp_path / "mounts") == Path("/sys/fs/cgroup/net_cls,net_prio")


def test_the_hosts_own_group_marks_the_interface_as_taken(tmp_path: Path, divided: Divided) -> None:
    open_network(tmp_path, "h1", LINK, INNER)
    assert (group(tmp_path) / PRIORITIES).read_text() == f"eth7 {priority(OTHERS)}"
    (group(tmp_path) / PRIORITIES).unlink()
    open_network(tmp_path, "h1", None, INNER)
    assert divided.weights == {}, "without the marker, the group belongs to another installation"


def test_an_interface_that_the_kernel_gives_no_priorities_is_not_divided(
    tmp_path: Path, divided: Divided, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    with monkeypatch.context() as kernel:
        kernel.setattr(Path, "write_text", refuse)
        containers, summary = open_network(tmp_path, "h1", LINK, INNER)
    assert containers is INNER
    assert (
        summary == "eth7 is not divided: net_prio does not know eth7: "
        "it knows interfaces of the machine, not those of a network namespace"
    )
    assert divided.weights is None
    assert find_network(tmp_path, "h1", INNER) is INNER, "the failed attempt leaves no group"
