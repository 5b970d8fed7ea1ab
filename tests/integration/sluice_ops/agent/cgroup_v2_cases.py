"""The cases that `test_cgroup_v2` runs on a second kernel, which has one core and only control
groups of version 2.
"""

import os
import signal
import subprocess
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits import control_groups as module
from sluice_ops.agent.limits.control_group_trees import AGENTS
from sluice_ops.agent.limits.control_groups import (
    HEADROOM,
    MEBIBYTE,
    Containers,
    find_containers,
    installation_group,
    open_containers,
    remove_groups,
)
from sluice_ops.agent.limits.cpusets import open_cores
from sluice_ops.model.assignment import HostFacts, Unit
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Capacity
from tests.integration.sluice_ops.agent.conftest import until
from tests.integration.sluice_ops.agent.test_isolation import GREEDY, NEIGHBOUR, burning, started

TREE = Path("/sys/fs/cgroup")
CAPACITY = Capacity(cpu=1, memory=1024)
SECONDS = 6.0
NOBODY = 65534

pytestmark = pytest.mark.timeout(120)


@dataclass
class Host:
    home: Path
    containers: Containers

    def cpu_seconds(self, unit: Unit) -> float:
        """Return the processor seconds that a unit has used."""
        usage = self.containers.usage(unit.id)
        assert usage is not None
        assert usage.cpu is not None
        return usage.cpu


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    HostFolder(tmp_path, "h1").make()
    yield Host(tmp_path, open_containers(tmp_path, "h1", CAPACITY))
    remove_groups(tmp_path)
    assert not (TREE / installation_group(tmp_path)).exists(), "no control group is left"


def test_this_kernel_has_only_version_2(host: Host) -> None:
    assert host.containers.limits == "cgroup v2"
    assert find_containers(host.home, "h1").limits == "cgroup v2"


def test_without_the_controller_cpuset_units_share_cores(host: Host) -> None:
    facts = HostFacts(name=HostName("h1"), address="127.0.0.1", zone="x", cpu=1, memory=1024)
    containers, description = open_cores(host.home, facts, "own", host.containers)
    assert containers is host.containers
    assert description.startswith(f"shared by quantum.cpu: {TREE}/cgroup.controllers has no cpuset")


def test_units_share_a_core_by_their_quantums(host: Host) -> None:
    large = NEIGHBOUR.model_copy(update={"quantum": NEIGHBOUR.quantum.model_copy(update={"cpu": 3.0})})
    with (
        burning(host.containers, "cpu", host.home),
        started(host.containers, large, "work", "60", folder=host.home) as worker,
    ):
        until("both units work", lambda: min(host.cpu_seconds(GREEDY), host.cpu_seconds(large)) > 1, 60)
        before = host.cpu_seconds(GREEDY), host.cpu_seconds(large)
        time.sleep(SECONDS)
        little, much = host.cpu_seconds(GREEDY) - before[0], host.cpu_seconds(large) - before[1]
        worker.kill()
    assert much / (little + much) == pytest.approx(3 / 4, abs=0.04)


def test_a_unit_that_is_out_of_memory_is_killed_alone(host: Host) -> None:
    with started(host.containers, NEIGHBOUR, "work", str(SECONDS), folder=host.home) as neighbour:
        with burning(host.containers, "memory", host.home):
            until("a greedy process was killed", lambda: host.containers.ran_out_of_memory(GREEDY.id), 60)
            usage = host.containers.usage(GREEDY.id)
            assert usage is not None
            assert usage.memory <= usage.limit == int(GREEDY.quantum.memory * HEADROOM) * MEBIBYTE
        assert neighbour.wait() == 0
    assert not host.containers.ran_out_of_memory(NEIGHBOUR.id)


def test_a_unit_continues_when_its_host_has_less_than_promised(host: Host) -> None:
    with started(host.containers, NEIGHBOUR, "work", "3", folder=host.home) as neighbour:
        until("the process is in its control group", lambda: host.containers.processes(NEIGHBOUR.id, None))
        after = open_containers(host.home, "h1", Capacity(cpu=1, memory=1))
        assert "MiB instead of 1," in after.limits
        assert neighbour.wait() == 0
    assert not host.containers.ran_out_of_memory(NEIGHBOUR.id)


def test_only_the_unit_that_starts_too_many_threads_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "THREADS", 100)
    with burning(host.containers, "threads", host.home):
        counted = TREE / installation_group(host.home) / "h1" / GREEDY.id / "pids.current"
        until("the greedy unit has as many threads as allowed", lambda: counted.read_text() == "100\n", 60)
        with started(host.containers, NEIGHBOUR, "work", "1", folder=host.home) as neighbour:
            assert neighbour.wait() == 0


def test_an_agent_without_root_divides_its_delegated_group(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As systemd sets it up: the group belongs to the agent's user, and the agent starts in a group
    below it.
    """
    group = TREE / "sluice-agent@h1.service"
    (group / AGENTS).mkdir(parents=True)
    (TREE / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    home = tmp_path_factory.mktemp("home")
    tmp_path_factory.getbasetemp().chmod(0o755)
    for path in (
        home,
        *(
            folder / name
            for folder in (group, group / AGENTS)
            for name in (".", "cgroup.procs", "cgroup.subtree_control")
        ),
    ):
        os.chown(path, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            (group / AGENTS / "cgroup.procs").write_text(str(os.getpid()))
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            divide(home)
            ended = 0
        except BaseException:  # noqa: BLE001 - printed, and reported by the exit code
            traceback.print_exc()
        finally:
            os._exit(ended)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not (group / installation_group(home)).exists(), "no control group is left"


def divide(home: Path) -> None:
    """Run one quiet unit and one that runs out of memory."""
    HostFolder(home, "h1").make()
    containers = open_containers(home, "h1", CAPACITY)
    assert containers.limits == "cgroup v2, delegated"
    (quiet,), (full,) = containers.admit(NEIGHBOUR), containers.admit(GREEDY)
    runs, grows = (
        subprocess.Popen(["sh", "-c", f'echo $$ > "{procs}"; exec {words}'])
        for procs, words in ((quiet, "sleep 60"), (full, "tail /dev/zero"))
    )
    assert grows.wait(60) == -signal.SIGKILL
    assert containers.ran_out_of_memory(GREEDY.id)
    assert containers.processes(NEIGHBOUR.id, None) == {runs.pid}
    runs.kill()
    runs.wait()
    for unit in (NEIGHBOUR, GREEDY):
        containers.remove(unit.id)
    containers.close()
