"""A slot that takes all it can get, in the container of a tier that serves: what the other tiers put through stays what it was."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.burn import KINDS
from tests.scenarios.live import ROOT, Live
from tests.scenarios.oracle import Load

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups"),
]

RATE = 250
WINDOW_SECONDS = 20.0
LEFT = 0.95
VICTIM = "counts"
"""A tier that nothing comes after."""


def joins(pid: int) -> list[Path]:
    """Return the files that a process writes its pid to, to be where another one is."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        for mount in Path("/proc/mounts").read_text().splitlines():
            _, where, kind, options, *_ = mount.split()
            mine = (
                kind == "cgroup2"
                if not controllers
                else kind == "cgroup" and controllers in options.split(",")
            )
            if mine and "sluice-" in group:
                found.append(Path(where) / group.lstrip("/") / "cgroup.procs")
    return found


@contextmanager
def burning(live: Live, kind: str) -> Iterator[None]:
    incarnation = live.tiers()[VICTIM]["incarnation"]
    slot = next(iter(live.unit_pids(f"slot-{VICTIM}-{incarnation}-").values()))
    files = joins(slot)
    assert files, "the slot has a container"
    script = (
        f'for procs in {" ".join(map(str, files))}; do echo $$ > "$procs"; done; cd {live.home}; exec "$@"'
    )
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "tests.burn", kind]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def put_out(load: Load, begin: float) -> tuple[float, float]:
    """Return how many hits came out in a second of the window that begins then, and the longest time without one."""
    times = sorted(
        at for at in list(load.enriched.first_seen.values()) if begin <= at < begin + WINDOW_SECONDS
    )
    return len(times) / WINDOW_SECONDS, max(
        later - earlier for earlier, later in pairwise([begin, *times, begin + WINDOW_SECONDS])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_that_takes_all_leaves_the_other_tiers_their_throughput(live: Live, kind: str) -> None:
    with Load(live, RATE) as load:
        time.sleep(5)
        alone = time.time()
        time.sleep(WINDOW_SECONDS)
        with burning(live, kind):
            time.sleep(2)
            beside = time.time()
            time.sleep(WINDOW_SECONDS)
        time.sleep(3)
        (before, gap_before), (rate, gap) = put_out(load, alone), put_out(load, beside)
        print(
            f"beside {VICTIM} taking all {kind}: {rate:.1f}/s of {before:.1f}/s, gap {gap:.3f} s of {gap_before:.3f} s"
        )
    load.check()
    assert rate >= LEFT * before
