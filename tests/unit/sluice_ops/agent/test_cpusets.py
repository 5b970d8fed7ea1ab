"""The processors written into each group, on made-up trees of both cgroup versions.

No failure of cpusets keeps an agent from starting.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice_ops.agent.host.store import HostFolder, UnitRecord
from sluice_ops.agent.limits import cpusets
from sluice_ops.agent.limits.control_group_trees import CPU, MEMORY, TIMES, V1, V2, Trees
from sluice_ops.agent.limits.control_groups import (
    Containers,
    ControlGroups,
    NoContainers,
    installation_group,
    remove_groups,
)
from sluice_ops.agent.limits.cpusets import (
    CPUS,
    MEMS,
    NOT_ASKED,
    ContainersWithCores,
    find_cores,
    missing_requirement,
    open_cores,
)
from sluice_ops.model.assignment import HostFacts, Unit
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Capacity, Cores
from tests.unit.sluice_ops.agent.test_network import remove_group
from tests.unit.sluice_ops.agent.test_reconcile import driver, slot

QUANTUM = slot().quantum


def taking(cpu: float, number: int = 0) -> Unit:
    return slot(number=number).model_copy(update={"quantum": QUANTUM.model_copy(update={"cpu": cpu})})


DRIVER = driver().model_copy(update={"quantum": QUANTUM.model_copy(update={"cpu": 0.5})})


class Machine:
    """A kernel's trees, and one host's agents, one after the other."""

    def __init__(self, home: Path, version: str) -> None:
        self.home, self.version = home, version
        self.units: list[Unit] = []
        self.moves: list[tuple[set[int], Path]] = []
        if version == "v1":
            self.tree = home / "cpuset"
            lines = [f"cgroup {home}/{name} cgroup rw,{name} 0 0" for name in ("cpu", "memory", "cpuset")]
            for name in ("cpu", "memory", "cpuset"):
                (home / name).mkdir()
            (self.tree / CPUS).write_text("0-3\n")
            (self.tree / MEMS).write_text("0\n")
            (self.tree / "cgroup.procs").touch()
        else:
            self.tree = home / "tree"
            lines = [f"cgroup2 {self.tree} cgroup2 rw 0 0"]
            self.tree.mkdir()
            (self.tree / "cgroup.controllers").write_text("cpuset cpu memory\n")
        (home / "mounts").write_text("\n".join(lines))
        HostFolder(home, "h1").make()

    def agent(self, cores: Cores = "own", host: str = "h1", cpu: float = 4) -> tuple[Containers, str]:
        HostFolder(self.home, host).make()
        facts = HostFacts(name=HostName(host), address="127.0.0.1", zone="x", cpu=cpu, memory=8192)
        return open_cores(self.home, facts, cores, self.groups(host), self.home / "mounts")

    def groups(self, host: str = "h1") -> ControlGroups:
        cgroup_version, trees = (
            V1 if self.version == "v1" else V2,
            {MEMORY: self.tree, CPU: self.tree, TIMES: self.tree},
        )
        if cgroup_version is V1:
            trees = {MEMORY: self.home / "memory", CPU: self.home / "cpu", TIMES: self.home / "cpu"}
        groups = ControlGroups(Trees(cgroup_version, trees), installation_group(self.home), host)
        groups.prepare(Capacity(cpu=4, memory=8192))
        return groups

    def start(self, containers: Containers, *units: Unit) -> tuple[Path, ...]:
        """Start units as the agent does; return the paths that the last one joins."""
        joins: tuple[Path, ...] = ()
        for unit in units:
            joins = containers.admit(unit)
            folder = HostFolder(self.home, "h1").unit(unit.id)
            folder.path.mkdir(exist_ok=True)
            folder.write_record(UnitRecord(unit=unit, boot="", started_at=float(len(self.units))))
            self.units.append(unit)
        return joins

    def end(self, containers: Containers, unit: Unit) -> None:
        containers.remove(unit.id)
        (HostFolder(self.home, "h1").unit(unit.id).path / "unit.json").unlink()

    def move(self, pids: Iterable[int], procs: Path) -> None:
        """Move processes into one group of the controller, as the kernel does."""
        if (
            moving := set(pids) - {int(pid) for pid in procs.read_text().split()}
            if procs.exists()
            else set(pids)
        ):
            self.moves.append((moving, procs.parent))
            for other in self.tree.glob("sluice-*/*/*/cgroup.procs"):
                other.write_text(
                    "\n".join(pid for pid in other.read_text().split() if int(pid) not in moving)
                )
            procs.write_text("\n".join(map(str, moving)))

    @property
    def host(self) -> Path:
        return self.tree / installation_group(self.home) / "h1"

    def has(self, unit: Unit) -> str:
        return (self.host / unit.id / CPUS).read_text().strip()


@pytest.fixture(params=["v1", "v2"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "rmdir", remove_group)
    fake_machine = Machine(tmp_path, request.param)
    monkeypatch.setattr(cpusets, "_move", fake_machine.move)
    return fake_machine


def test_whole_quanta_have_own_cores_and_the_others_share_the_rest(machine: Machine) -> None:
    containers, summary = machine.agent()
    joins = machine.start(containers, DRIVER, taking(1), taking(2, 1))
    assert (machine.has(taking(1)), machine.has(taking(2, 1)), machine.has(DRIVER)) == ("0", "1,2", "3")
    assert summary == "cores of their own"
    assert containers.limits.endswith("; cores of their own")
    file = machine.host / taking(2, 1).id / "cgroup.procs"
    assert file in joins
    if machine.version == "v1":
        assert all(
            (level / MEMS).read_text() == "0\n" for level in (machine.host.parent, machine.host, file.parent)
        )
        assert (machine.host.parent / CPUS).read_text() == (machine.host / CPUS).read_text() == "0-3\n"
    else:
        assert len(joins) == 1, "the unit joins the group that it has anyway"
        for level in (machine.tree, machine.host.parent, machine.host):
            assert "+cpuset" in (level / "cgroup.subtree_control").read_text()
    machine.end(containers, taking(1))
    assert machine.has(DRIVER) == "0,3"
    assert not (machine.host / taking(1).id).exists()


def test_the_next_agent_reads_each_units_processors_and_writes_nothing(machine: Machine) -> None:
    first, _ = machine.agent()
    machine.start(first, taking(1), taking(1, 1), DRIVER)
    machine.end(first, taking(1))
    for file in machine.host.glob(f"*/{CPUS}"):
        os.utime(file, (1, 1))
    machine.agent()
    assert {file.stat().st_mtime for file in machine.host.glob(f"*/{CPUS}")} == {1}
    assert (machine.has(taking(1, 1)), machine.has(DRIVER)) == ("1", "0,2,3")


def test_a_unit_without_enough_cores_is_named_and_gets_its_own_later(machine: Machine) -> None:
    containers, summary = machine.agent(cpu=9)
    assert summary.endswith(
        "capacity.cpu is 9, but the agent may use 4 processors, so the last units share: lower capacity.cpu"
    )
    with capture_logs() as log_lines:
        machine.start(containers, taking(2), DRIVER, taking(2, 1))
    assert (machine.has(taking(2)), machine.has(DRIVER), machine.has(taking(2, 1))) == ("0,1", "2,3", "2,3")
    late = f"cores of their own, except {taking(2, 1).id}: 4 processors are too few"
    assert containers.limits.endswith(f"; {late}")
    assert [line["cores"] for line in log_lines] == [late]
    machine.end(containers, DRIVER)
    assert machine.has(taking(2, 1)) == "2,3"
    assert containers.limits.endswith("; cores of their own")


def test_running_units_enter_and_leave_cpusets_with_the_site_file(
    machine: Machine,
) -> None:
    before, summary = machine.agent("shared")
    assert (summary, isinstance(before, ContainersWithCores)) == (NOT_ASKED, False)
    machine.start(before, taking(1), DRIVER)
    for group in machine.home.glob(f"*/{installation_group(machine.home)}/h1/*/"):
        (group / "cgroup.procs").write_text("4711\n" if group.name == taking(1).id else "4712\n")
    machine.agent()
    assert (machine.has(taking(1)), machine.has(DRIVER)) == ("0", "1,2,3")
    if machine.version == "v1":
        assert machine.moves == [({4711}, machine.host / taking(1).id), ({4712}, machine.host / DRIVER.id)]
    containers, summary = machine.agent("shared")
    assert (summary, isinstance(containers, ContainersWithCores)) == (NOT_ASKED, False)
    if machine.version == "v1":
        assert sorted(machine.moves[2:], key=str) == [({4711}, machine.tree), ({4712}, machine.tree)]
        assert not machine.host.parent.exists()
    else:
        assert (machine.has(taking(1)), machine.has(DRIVER), (machine.host / CPUS).read_text().strip()) == (
            "",
            "",
            "",
        )


def test_two_hosts_of_a_machine_do_not_divide_the_same_processors(machine: Machine) -> None:
    machine.agent()
    with capture_logs() as log_lines:
        containers, summary = machine.agent(host="h2")
    assert not isinstance(containers, ContainersWithCores)
    assert summary.startswith("shared by quantum.cpu: host h1 of sluice-")
    assert [line["event"] for line in log_lines] == [
        "units have no cores of their own; all units share all processors"
    ]
    assert isinstance(machine.agent()[0], ContainersWithCores), (
        "the host's own marker does not stop its next agent"
    )


def test_ending_a_hosts_units_removes_all_its_cpusets(machine: Machine) -> None:
    containers, _ = machine.agent()
    machine.start(containers, taking(1))
    containers = find_cores(machine.home, "h1", machine.groups(), machine.home / "mounts")
    containers.remove(taking(1).id)
    containers.close()
    assert not machine.host.exists()
    assert not isinstance(
        find_cores(machine.home, "h1", machine.groups(), machine.home / "mounts"), ContainersWithCores
    )


def test_left_over_cpusets_of_an_installation_are_swept(machine: Machine) -> None:
    containers, _ = machine.agent()
    machine.start(containers, taking(1))
    remove_groups(machine.home, machine.home / "mounts")
    assert not machine.host.parent.exists()


def test_a_failed_write_is_logged_once_and_stops_no_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers, _ = machine.agent()

    def refused(numbers: frozenset[int]) -> str:
        raise PermissionError(13, f"no {len(numbers)}")

    monkeypatch.setattr(cpusets, "_written", refused)
    with capture_logs() as log_lines:
        joins = machine.start(containers, taking(1), taking(1, 1))
    assert [line["event"] for line in log_lines] == [
        "cpusets cannot be written: units run on processors of other units"
    ]
    assert machine.host / taking(1, 1).id / "cgroup.procs" not in joins or machine.version == "v2"
    assert joins
    monkeypatch.undo()


def test_without_the_cpuset_controller_the_log_says_why_nothing_is_pinned(machine: Machine) -> None:
    if machine.version == "v1":
        (machine.home / "mounts").write_text(
            f"cgroup {machine.home}/cpu cgroup rw,cpu 0 0\ncgroup {machine.home}/memory cgroup rw,memory 0 0"
        )
    else:
        (machine.tree / "cgroup.controllers").write_text("cpu memory\n")
    with capture_logs() as log_lines:
        containers, summary = machine.agent()
    assert not isinstance(containers, ContainersWithCores)
    assert ("mount -t cgroup -o cpuset" if machine.version == "v1" else "Delegate=yes") in summary
    assert [line["event"] for line in log_lines] == [
        "units have no cores of their own; all units share all processors"
    ]


def test_without_control_groups_or_root_units_have_no_own_cores(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = HostFacts(name=HostName("h1"), address="127.0.0.1", zone="x", cpu=4, memory=8192)
    none = NoContainers("this is a test", machine.home, "h1")
    assert open_cores(machine.home, facts, "own", none, machine.home / "mounts")[0] is none
    assert missing_requirement(None) == "units have no control groups"
    monkeypatch.setattr(os, "geteuid", lambda: 970)
    why = missing_requirement(machine.groups().trees, machine.home / "mounts")
    assert (why is not None and why.startswith("user 970 may not set processors: run the agent as root")) is (
        machine.version == "v1"
    )
