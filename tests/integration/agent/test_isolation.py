"""A slot that takes all it can get leaves its neighbours what is theirs: measured, in the containers that agents make."""

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from ops.agent.containers import THREADS, Containers, open_containers, sweep
from ops.agent.store import HostFolder
from ops.model.assignment import Unit
from ops.model.resources import Capacity
from tests.burn import KINDS
from tests.integration.agent.conftest import REPOSITORY, limited, slot, until

pytestmark = [limited, pytest.mark.long, pytest.mark.timeout(400)]

MEASURE_SECONDS = 5.0
ROUNDS = 3
LEFT = 0.95
"""The neighbour has at least this part of its throughput beside any other slot."""
NEIGHBOUR, GREEDY = slot("enrich"), slot("counts", memory=200)


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    HostFolder(tmp_path, "h1").make()
    made = open_containers(tmp_path, "h1", Capacity(cpu=os.cpu_count() or 1, memory=4096))
    yield made
    sweep(tmp_path)


def started(containers: Containers, unit: Unit, *words: str, folder: Path) -> subprocess.Popen[str]:
    """Start a process in a unit's container, as the agent's script does."""
    joins = " ".join(str(file) for file in containers.admit(unit))
    script = f'for procs in {joins}; do echo $$ > "$procs"; done; cd {folder}; exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "tests.burn", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)


@contextmanager
def burning(containers: Containers, kind: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with started(containers, GREEDY, kind, folder=folder) as process:
        try:
            yield process
        finally:
            for pid in containers.processes(GREEDY.id, None):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    until("nothing is left of it", lambda: not containers.processes(GREEDY.id, None), 20)


def throughput(containers: Containers, folder: Path) -> int:
    out, _ = started(containers, NEIGHBOUR, "work", str(MEASURE_SECONDS), folder=folder).communicate(timeout=60)
    return int(out)


@pytest.mark.parametrize("kind", KINDS)
def test_a_greedy_slot_leaves_its_neighbour_its_throughput(containers: Containers, tmp_path: Path, kind: str) -> None:
    parts = []
    for _ in range(ROUNDS):
        alone = throughput(containers, tmp_path)
        with burning(containers, kind, tmp_path) as process:
            parts.append(throughput(containers, tmp_path) / alone)
            assert process.poll() is None, "it goes on burning"
    print(f"beside a slot that takes all {kind}: {', '.join(f'{part:.3f}' for part in parts)} of the throughput alone")  # noqa: T201
    assert statistics.median(parts) >= LEFT


def test_a_slot_that_is_full_is_killed_alone(containers: Containers, tmp_path: Path) -> None:
    neighbour = started(containers, NEIGHBOUR, "work", "10", folder=tmp_path)
    with burning(containers, "memory", tmp_path):
        until("something in it was killed", lambda: containers.ran_out_of_memory(GREEDY.id), 60)
    out, _ = neighbour.communicate(timeout=60)
    assert neighbour.returncode == 0
    assert int(out) > 0
    assert not containers.ran_out_of_memory(NEIGHBOUR.id)


def test_a_slot_that_starts_ever_more_threads_is_refused_alone(containers: Containers, tmp_path: Path) -> None:
    with burning(containers, "threads", tmp_path) as process:
        counted = psutil.Process(process.pid)
        until("it has as many as it may", lambda: counted.num_threads() >= THREADS - 10, 60)
        assert counted.num_threads() <= THREADS
        assert throughput(containers, tmp_path) > 0, "others start processes"


def test_a_slot_goes_on_when_its_host_gives_less_than_it_was_promised(containers: Containers, tmp_path: Path) -> None:
    runs = started(containers, NEIGHBOUR, "work", "3", folder=tmp_path)
    until("it is in its container", lambda: containers.processes(NEIGHBOUR.id, None))
    after = open_containers(tmp_path, "h1", Capacity(cpu=os.cpu_count() or 1, memory=1))
    assert f"{int(NEIGHBOUR.quantum.memory * 1.15)} MiB instead of 1" in after.limits
    out, _ = runs.communicate(timeout=60)
    assert runs.returncode == 0
    assert int(out) > 0
    assert not after.ran_out_of_memory(NEIGHBOUR.id)
