import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_group_trees import (
    CPU,
    DISK,
    MEMORY,
    TASKS,
    TIMES,
    V1,
    V2,
    Trees,
    disk_weights_count,
)
from sluice_ops.agent.limits.control_groups import (
    QUIET,
    THREADS,
    Containers,
    ControlGroups,
    NoContainers,
    Usage,
    find_containers,
    installation_group,
    open_containers,
    remove_groups,
)
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Capacity
from tests.unit.sluice_ops.agent.test_reconcile import slot


@pytest.fixture
def groups(tmp_path: Path) -> ControlGroups:
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").mkdir()
    control_groups = ControlGroups(
        Trees(V1, {MEMORY: tmp_path / "memory", CPU: tmp_path / "cpu", TIMES: tmp_path / "cpuacct"}),
        "sluice-x",
        "h1",
    )
    control_groups.prepare(Capacity(cpu=8, memory=8192))
    return control_groups


def number(path: Path) -> int:
    return int(path.read_text())


def test_a_unit_is_limited_to_its_quantum_and_weighed_by_its_cores(
    groups: ControlGroups, tmp_path: Path
) -> None:
    joins = groups.admit(slot())
    assert joins == tuple(
        tmp_path / tree / "sluice-x/h1" / slot().id / "cgroup.procs" for tree in ("memory", "cpu", "cpuacct")
    )
    limit = number(tmp_path / "memory/sluice-x/h1" / slot().id / "memory.limit_in_bytes")
    assert slot().quantum.memory <= limit / (1 << 20) < slot().quantum.memory * 1.2
    assert number(tmp_path / "cpu/sluice-x/h1" / slot().id / "cpu.shares") == 1024


def test_a_hosts_weight_is_the_sum_of_its_units_weights(groups: ControlGroups, tmp_path: Path) -> None:
    groups.admit(slot())
    groups.admit(slot(number=1, quiet=True))
    quiet = number(tmp_path / "cpu/sluice-x/h1" / slot(number=1).id / "cpu.shares")
    assert quiet == int(1024 * QUIET)
    assert number(tmp_path / "cpu/sluice-x/h1/cpu.shares") == 1024 + quiet
    groups.set_weights(slot(number=1))
    assert number(tmp_path / "cpu/sluice-x/h1/cpu.shares") == 2048


def test_all_units_together_weigh_no_more_than_the_machines_cores(
    groups: ControlGroups, tmp_path: Path
) -> None:
    for index in range(5 * (os.cpu_count() or 1)):
        groups.admit(slot(number=index))
    assert number(tmp_path / "cpu/sluice-x/cpu.shares") == 1024 * (os.cpu_count() or 1)


def test_version_2_enables_the_controllers_in_each_group(tmp_path: Path) -> None:
    groups = ControlGroups(Trees(V2, dict.fromkeys((MEMORY, CPU, TIMES), tmp_path)), "sluice-x", "h1")
    groups.prepare(Capacity(cpu=8, memory=8192))
    groups.admit(slot())
    for group in (tmp_path, tmp_path / "sluice-x", tmp_path / "sluice-x/h1"):
        assert (group / "cgroup.subtree_control").read_text() == "+memory +cpu"
    assert number(tmp_path / "sluice-x/h1" / slot().id / "cpu.weight") == 100


@pytest.fixture(params=[V1, V2])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], tuple[ControlGroups, Path]]:
    """Return a function that starts the next agent with the given memory in MiB, after two units
    were started.
    """

    def started(memory: int) -> tuple[ControlGroups, Path]:
        (tmp_path / "tree").mkdir(exist_ok=True)
        control_groups = ControlGroups(
            Trees(request.param, dict.fromkeys((MEMORY, CPU, TIMES), tmp_path / "tree")), "sluice-x", "h1"
        )
        control_groups.prepare(Capacity(cpu=8, memory=memory))
        return control_groups, tmp_path / "tree/sluice-x/h1" / request.param.memory_limit

    groups, _ = started(4000)
    for index in range(2):
        groups.admit(slot(number=index))
    return started


def end(groups: ControlGroups, host: Path, name: UnitId) -> None:
    for file in (host / name).iterdir():
        file.unlink()  # the kernel removes the files of a group with the group
    groups.remove(name)


def test_a_host_with_less_than_its_promised_quanta_reports_and_keeps_them(
    full: Callable[[int], tuple[ControlGroups, Path]],
) -> None:
    quantum = int(slot().quantum.memory * 1.15)
    with capture_logs() as log_lines:
        groups, limit = full(100)
    assert number(limit) >> 20 == 2 * quantum
    assert groups.limits.endswith(
        f"; the host's memory limit is {2 * quantum:,} MiB instead of 114, because its units were promised "
        "so much"
    )
    assert [line["promised_mib"] for line in log_lines] == [2 * quantum]
    with capture_logs() as log_lines:
        end(groups, limit.parent, slot().id)
    assert log_lines == []
    assert number(limit) >> 20 == quantum
    groups.admit(slot(number=2))
    assert number(limit) >> 20 == 2 * quantum
    for index in (1, 2):
        end(groups, limit.parent, slot(number=index).id)
    assert number(limit) >> 20 == 114
    assert groups.limits in {V1.name, V2.name}


def test_a_host_with_enough_memory_is_limited_to_its_capacity(
    full: Callable[[int], tuple[ControlGroups, Path]],
) -> None:
    groups, limit = full(4000)
    assert number(limit) >> 20 == int(4000 * 1.15)
    assert groups.limits in {V1.name, V2.name}


def test_ending_units_from_outside_the_agent_keeps_the_hosts_limit(
    full: Callable[[int], tuple[ControlGroups, Path]], tmp_path: Path
) -> None:
    _, limit = full(100)
    before = number(limit)
    version = V2 if limit.name == V2.memory_limit else V1
    control_groups = ControlGroups(
        Trees(version, dict.fromkeys((MEMORY, CPU, TIMES), tmp_path / "tree")), "sluice-x", "h1"
    )
    end(control_groups, limit.parent, slot().id)
    assert number(limit) == before
    assert control_groups.limits == version.name


def test_a_units_usage_is_read_from_the_kernels_counters(groups: ControlGroups, tmp_path: Path) -> None:
    assert groups.usage(slot().id) is None, "the unit has not started"
    groups.admit(slot())
    memory, times = (tmp_path / tree / "sluice-x/h1" / slot().id for tree in ("memory", "cpuacct"))
    (memory / "memory.usage_in_bytes").write_text("1000000\n")
    (memory / "memory.stat").write_text("cache 500000\ntotal_inactive_file 200000\n")
    limit = number(memory / "memory.limit_in_bytes")
    assert groups.usage(slot().id) == Usage(800_000, limit, None), "this kernel does not count processor time"
    (times / "cpuacct.usage").write_text("2500000000\n")
    assert groups.usage(slot().id) == Usage(800_000, limit, 2.5)


def test_version_2_has_its_own_counters(tmp_path: Path) -> None:
    groups = ControlGroups(Trees(V2, dict.fromkeys((MEMORY, CPU, TIMES), tmp_path)), "sluice-x", "h1")
    groups.prepare(Capacity(cpu=8, memory=8192))
    groups.admit(slot())
    unit = tmp_path / "sluice-x/h1" / slot().id
    (unit / "memory.current").write_text("1000000\n")
    (unit / "memory.stat").write_text("anon 1\ninactive_file 200000\n")
    (unit / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert groups.usage(slot().id) == Usage(800_000, number(unit / "memory.max"), 2.5)
    (unit / "memory.max").write_text("max\n")
    assert groups.usage(slot().id) == Usage(800_000, None, 2.5)


def test_version_1_has_a_number_for_no_limit(groups: ControlGroups, tmp_path: Path) -> None:
    groups.admit(slot())
    memory = tmp_path / "memory/sluice-x/h1" / slot().id
    (memory / "memory.usage_in_bytes").write_text("1000000\n")
    (memory / "memory.stat").write_text("")
    (memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert groups.usage(slot().id) == Usage(1_000_000, None, None)


def test_a_units_disk_weight_is_its_quantums_where_the_kernel_has_weights(
    tmp_path: Path,
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "cpu").mkdir()
    uses = {MEMORY: "memory", CPU: "cpu", TIMES: "cpu", DISK: "blkio", TASKS: "pids"}
    groups = ControlGroups(Trees(V1, {use: tmp_path / name for use, name in uses.items()}), "sluice-x", "h1")
    groups.prepare(Capacity(cpu=8, memory=8192))
    groups.admit(slot())
    host = tmp_path / "blkio/sluice-x/h1"
    assert not (host / slot().id / "blkio.bfq.weight").exists(), (
        "the agent writes no file that the kernel does not have"
    )
    assert number(tmp_path / "pids/sluice-x/h1" / slot().id / "pids.max") == THREADS
    for number_of in (0, 1):
        (host / slot(number=number_of).id).mkdir(exist_ok=True)
        (host / slot(number=number_of).id / "blkio.bfq.weight").write_text("100")
    (host / "blkio.bfq.weight").write_text("100")
    groups.set_weights(slot())
    groups.admit(slot(number=1, quiet=True))
    assert number(host / slot(number=1).id / "blkio.bfq.weight") == int(100 * QUIET)
    assert number(host / "blkio.bfq.weight") == 100 + int(100 * QUIET)


@pytest.mark.parametrize(
    ("scheduler", "divides"),
    [("mq-deadline kyber [bfq]", True), ("[mq-deadline] kyber bfq", False), (None, None)],
)
def test_weights_of_disk_access_count_by_the_disks_scheduler(
    tmp_path: Path, scheduler: str | None, *, divides: bool | None
) -> None:
    device = tmp_path.stat().st_dev
    disk, numbered = tmp_path / "devices/vda", tmp_path / "dev/block"
    (disk / "vda1").mkdir(parents=True)
    (disk / "queue").mkdir()
    numbered.mkdir(parents=True)
    (numbered / f"{os.major(device)}:{os.minor(device)}").symlink_to(disk / "vda1")
    if scheduler is not None:
        (disk / "queue/scheduler").write_text(f"{scheduler}\n")
    assert disk_weights_count(tmp_path, tmp_path) is divides


def test_without_mounted_control_groups_there_are_no_limits(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("tmpfs /run tmpfs rw 0 0\n")
    containers = open_containers(tmp_path, "h1", Capacity(cpu=1, memory=100), mounts)
    assert containers.limits == "none: no control groups for cpu and memory are mounted"
    assert isinstance(find_containers(tmp_path, "h1", mounts), NoContainers)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
def test_an_agent_starts_without_write_access_to_control_groups(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("cgroup /proc/cpu cgroup rw,cpu 0 0\ncgroup /proc/memory cgroup rw,memory 0 0\n")
    assert open_containers(tmp_path, "h1", Capacity(cpu=1, memory=100), mounts).limits.startswith(
        "none: control groups cannot be written"
    )


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    """A mounted cgroup v2 tree with a group that systemd delegated to the agent's service."""
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path}/tree cgroup2 rw 0 0\n")
    service = tmp_path / "tree/system.slice/sluice-agent@h1.service"
    (service / "agent").mkdir(parents=True)
    (tmp_path / "tree/cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        (service / name).touch()
    (service / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "membership").write_text("0::/system.slice/sluice-agent@h1.service/agent\n")
    HostFolder(tmp_path, "h1").make()
    return tmp_path


def open_at(machine: Path) -> Containers:
    return open_containers(
        machine, "h1", Capacity(cpu=8, memory=8192), machine / "mounts", machine / "membership"
    )


def test_units_are_kept_below_the_delegated_group_beside_the_agents(version_2: Path) -> None:
    service = version_2 / "tree/system.slice/sluice-agent@h1.service"
    containers = open_at(version_2)
    assert containers.limits == "cgroup v2, delegated"
    (joins,) = containers.admit(slot())
    assert joins == service / installation_group(version_2) / "h1" / slot().id / "cgroup.procs"
    assert (service / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert number(joins.with_name("pids.max")) == THREADS
    assert not (version_2 / "tree/cgroup.subtree_control").exists(), "systemd owns the machine's own groups"


def test_other_processes_find_units_below_the_delegated_group(version_2: Path) -> None:
    (joins,) = open_at(version_2).admit(slot())
    joins.write_text("4711\n")
    assert find_containers(version_2, "h1", version_2 / "mounts").processes(slot().id, None) == {4711}


@pytest.mark.parametrize(
    "own",
    [
        # systemd before 254 has no DelegateSubgroup, so the next agent could not start
        "0::/system.slice/sluice-agent@h1.service",
        "0::/user.slice/user-1000.slice/session-1.scope",
        "0::/",
        "4:memory:/system.slice/sluice-agent@h1.service/agent",
        "",
    ],
)
def test_without_a_delegated_group_the_machines_own_tree_is_used(version_2: Path, own: str) -> None:
    open_at(version_2)
    (version_2 / "membership").write_text(f"{own}\n")
    containers = open_at(version_2)
    assert containers.limits == "cgroup v2"
    assert containers.admit(slot()) == (
        version_2 / "tree" / installation_group(version_2) / "h1" / slot().id / "cgroup.procs",
    )
    assert HostFolder(version_2, "h1").group() is None


def test_a_delegated_group_without_the_files_of_one_is_not_used(version_2: Path) -> None:
    (version_2 / "tree/system.slice/sluice-agent@h1.service/cgroup.subtree_control").unlink()
    assert open_at(version_2).limits == "cgroup v2"


def test_after_a_restart_of_the_machine_no_group_has_to_be_removed(version_2: Path) -> None:
    HostFolder(version_2, "h1").write_group(version_2 / "tree/gone")
    containers = find_containers(version_2, "h1", version_2 / "mounts")
    assert containers.limits == "none: the host's agent has made no control groups"
    containers.remove(slot().id)


def test_two_installations_use_different_groups(tmp_path: Path) -> None:
    assert installation_group(tmp_path / "a") != installation_group(tmp_path / "b")


def test_groups_of_removed_hosts_are_swept_and_used_groups_stay(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"cgroup {tmp_path}/cpu cgroup rw,cpu 0 0\ncgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
    )
    mine, other = installation_group(tmp_path), installation_group(tmp_path / "other")
    for group in (
        f"cpu/{mine}/ec2-1/slot",
        f"memory/{mine}/ec2-1",
        f"memory/{mine}/h1/used",
        f"cpu/{other}/h1",
    ):
        (tmp_path / group).mkdir(parents=True)
    # A file in the group: like the kernel, rmdir then refuses to remove it.
    (tmp_path / "memory" / mine / "h1" / "used" / "cgroup.procs").touch()
    remove_groups(tmp_path, mounts)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/**/")) == sorted(
        [
            "cpu",
            f"cpu/{other}",
            f"cpu/{other}/h1",
            "memory",
            f"memory/{mine}",
            f"memory/{mine}/h1",
            f"memory/{mine}/h1/used",
        ]
    )
