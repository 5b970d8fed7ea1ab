"""A process in one tier's slot uses all of one resource: the throughput of the other tiers stays
the same.
"""

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
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make control groups"),
]

RATE = 250
WINDOW_SECONDS = 20.0
KEPT_FRACTION = 0.95
VICTIM = "counts"
"""The last tier of its branch, so no other tier depends on its output."""


def cgroup_procs(pid: int) -> list[Path]:
    """Return the `cgroup.procs` files that move another process into the control groups of
    `pid`.
    """
    procs_files = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        for mount in Path("/proc/mounts").read_text().splitlines():
            _, folder, kind, options, *_ = mount.split()
            matches = (
                kind == "cgroup2"
                if not controllers
                else kind == "cgroup" and controllers in options.split(",")
            )
            if matches and "sluice-" in group:
                procs_files.append(Path(folder) / group.lstrip("/") / "cgroup.procs")
    return procs_files


@contextmanager
def burning(live: Live, kind: str) -> Iterator[None]:
    incarnation = live.tiers()[VICTIM]["incarnation"]
    slot = next(iter(live.unit_pids(f"slot-{VICTIM}-{incarnation}-").values()))
    files = cgroup_procs(slot)
    assert files, "the slot has a control group"
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


def output(load: Load, begin: float) -> tuple[float, float]:
    """Return the hits per second in the window from `begin` on, and the longest time
    without a hit.
    """
    times = sorted(
        at for at in list(load.enriched.first_seen.values()) if begin <= at < begin + WINDOW_SECONDS
    )
    return len(times) / WINDOW_SECONDS, max(
        later - earlier for earlier, later in pairwise([begin, *times, begin + WINDOW_SECONDS])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_greedy_slot_leaves_other_tiers_their_throughput(live: Live, kind: str) -> None:
    with Load(live, RATE) as load:
        time.sleep(5)
        alone = time.time()
        time.sleep(WINDOW_SECONDS)
        with burning(live, kind):
            time.sleep(2)
            beside = time.time()
            time.sleep(WINDOW_SECONDS)
        time.sleep(3)
        (before, gap_before), (rate, gap) = output(load, alone), output(load, beside)
        print(
            f"beside {VICTIM} using all {kind}: {rate:.1f}/s of {before:.1f}/s, gap {gap:.3f} s of "
            f"{gap_before:.3f} s"
        )
    load.check()
    assert rate >= KEPT_FRACTION * before
