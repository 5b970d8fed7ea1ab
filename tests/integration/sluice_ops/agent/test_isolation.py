"""A slot that uses all of a resource leaves its neighbours their part.

Measured in control groups that agents make.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from sluice_ops.agent.host.store import HostFolder, UnitRecord
from sluice_ops.agent.limits.control_groups import THREADS, Containers, open_containers, remove_groups
from sluice_ops.agent.limits.cpusets import open_cores
from sluice_ops.model.assignment import HostFacts, Unit
from sluice_ops.model.ids import HostName
from sluice_ops.model.resources import Capacity
from tests.burn import KINDS
from tests.integration.sluice_ops.agent.conftest import REPOSITORY, limited, slot, until

pytestmark = [limited, pytest.mark.long, pytest.mark.timeout(400)]

MEASURE_SECONDS = 5.0
ROUNDS = 3
KEPT = 0.95
"""The smallest part of its throughput that a neighbour keeps beside any other slot."""
KEPT_BY_WEIGHTS = 0.90
"""The part beside a slot that uses all cores, if both share the cores.

The kernel's load balancer sometimes puts a greedy process on the neighbour's core
(docs/benchmarks.md, Isolation). With their own cores, slots keep `KEPT`.
"""
KEPT_BESIDE_INTERRUPTS = 0.75
"""The part on a processor that also handles the interrupts of a disk which another slot keeps busy.
"""
FACTS = HostFacts(name=HostName("h1"), address="127.0.0.1", zone="onprem", cpu=2, memory=4096)
NEIGHBOUR, GREEDY = slot("enrich"), slot("counts", memory=200)


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    HostFolder(tmp_path, "h1").make()
    unit_containers = open_containers(tmp_path, "h1", Capacity(cpu=os.cpu_count() or 1, memory=4096))
    yield unit_containers
    remove_groups(tmp_path)


def started(containers: Containers, unit: Unit, *words: str, folder: Path) -> subprocess.Popen[str]:
    """Start a process in a unit's control group, as the agent's script does."""
    procs_files = " ".join(str(file) for file in containers.admit(unit))
    script = f'for procs in {procs_files}; do echo $$ > "$procs"; done; cd {folder}; exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "tests.burn", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


@contextmanager
def burning(containers: Containers, kind: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with started(containers, GREEDY, kind, folder=folder) as process:
        try:
            yield process
        finally:
            for pid in containers.processes(GREEDY.id, None):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    until("no greedy process is left", lambda: not containers.processes(GREEDY.id, None), 20)


def throughput(containers: Containers, folder: Path, *processor: str) -> int:
    out, _ = started(
        containers, NEIGHBOUR, "work", str(MEASURE_SECONDS), *processor, folder=folder
    ).communicate(timeout=60)
    return int(out)


def kept_parts(containers: Containers, folder: Path, kind: str, *processor: str) -> list[float]:
    """Return the neighbour's throughput beside a greedy slot as parts of its throughput alone, one
    for each round.
    """
    parts = []
    for _ in range(ROUNDS):
        alone = throughput(containers, folder, *processor)
        with burning(containers, kind, folder) as process:
            parts.append(throughput(containers, folder, *processor) / alone)
            assert process.poll() is None, "the greedy slot still runs"
    list_of_parts = ", ".join(f"{part:.3f}" for part in parts)
    print(f"beside a slot that uses all {kind}: {list_of_parts} of the throughput alone", *processor)
    return parts


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"disk"}))
def test_a_greedy_slot_leaves_its_neighbour_its_throughput(
    containers: Containers, tmp_path: Path, kind: str
) -> None:
    assert statistics.median(kept_parts(containers, tmp_path, kind)) >= (
        KEPT_BY_WEIGHTS if kind == "cpu" else KEPT
    )


def test_a_slot_that_fills_the_disk_costs_its_neighbour_interrupts_only(
    containers: Containers, tmp_path: Path
) -> None:
    """The kernel handles a disk's interrupts on one processor, outside all control groups.

    The other processor shows what the greedy slot alone takes.
    """
    processors = [str(number) for number in sorted(os.sched_getaffinity(0))[:2]]
    kept = [
        statistics.median(kept_parts(containers, tmp_path, "disk", processor)) for processor in processors
    ]
    assert max(kept) >= KEPT
    assert min(kept) >= KEPT_BESIDE_INTERRUPTS


@pytest.fixture
def own_cores(containers: Containers, tmp_path: Path) -> Containers:
    """Control groups in which each slot has one processor to itself; needs two processors."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    with_cores, description = open_cores(tmp_path, FACTS, "own", containers)
    assert description == "cores of their own"
    return with_cores


def test_a_slot_that_uses_all_cores_takes_none_of_a_neighbours_own(
    own_cores: Containers, tmp_path: Path
) -> None:
    assert statistics.median(kept_parts(own_cores, tmp_path, "cpu")) >= KEPT


def test_a_slot_has_its_own_processors_while_the_site_file_asks_for_them(
    containers: Containers, tmp_path: Path
) -> None:
    all_processors = os.sched_getaffinity(0)
    with ExitStack() as stack:
        runs = [
            stack.enter_context(started(containers, unit, "work", "60", folder=tmp_path))
            for unit in (NEIGHBOUR, GREEDY)
        ]
        for process, unit in zip(runs, (NEIGHBOUR, GREEDY), strict=True):
            stack.callback(process.kill)
            until("the process is in its control group", partial(containers.processes, unit.id, None))
            folder = HostFolder(tmp_path, "h1").unit(unit.id)
            folder.make()
            folder.write_record(UnitRecord(unit=unit, boot="", started_at=time.time()))
        open_cores(tmp_path, FACTS, "own", containers)
        first, second = (os.sched_getaffinity(process.pid) for process in runs)
        assert (len(first), len(second), first & second) == (1, 1, set())
        open_cores(tmp_path, FACTS, "shared", containers)
        assert [os.sched_getaffinity(process.pid) for process in runs] == [all_processors, all_processors]


def test_a_slot_that_is_out_of_memory_is_killed_alone(containers: Containers, tmp_path: Path) -> None:
    neighbour = started(containers, NEIGHBOUR, "work", "10", folder=tmp_path)
    with burning(containers, "memory", tmp_path):
        until("a greedy process was killed", lambda: containers.ran_out_of_memory(GREEDY.id), 60)
    out, _ = neighbour.communicate(timeout=60)
    assert neighbour.returncode == 0
    assert int(out) > 0
    assert not containers.ran_out_of_memory(NEIGHBOUR.id)


def test_only_the_slot_that_starts_too_many_threads_is_refused(
    containers: Containers, tmp_path: Path
) -> None:
    with burning(containers, "threads", tmp_path) as process:
        greedy = psutil.Process(process.pid)
        until(
            "the greedy slot has as many threads as allowed", lambda: greedy.num_threads() >= THREADS - 10, 60
        )
        assert greedy.num_threads() <= THREADS
        assert throughput(containers, tmp_path) > 0, "other slots can start processes"


def test_a_slot_continues_when_its_host_has_less_than_promised(
    containers: Containers, tmp_path: Path
) -> None:
    runs = started(containers, NEIGHBOUR, "work", "3", folder=tmp_path)
    until("the process is in its control group", lambda: containers.processes(NEIGHBOUR.id, None))
    after = open_containers(tmp_path, "h1", Capacity(cpu=os.cpu_count() or 1, memory=1))
    assert f"{int(NEIGHBOUR.quantum.memory * 1.15)} MiB instead of 1" in after.limits
    out, _ = runs.communicate(timeout=60)
    assert runs.returncode == 0
    assert int(out) > 0
    assert not after.ran_out_of_memory(NEIGHBOUR.id)
