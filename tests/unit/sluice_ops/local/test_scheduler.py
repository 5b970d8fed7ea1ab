"""A start of the scheduler ends the processes of a killed one, and no other process."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from sluice_ops.local.airflow_scheduler import WORKER

ORPHAN = """
import os, subprocess, sys, time
from setproctitle import setproctitle
child = subprocess.Popen(["sleep", "60"])
setproctitle(sys.argv[1])
print(child.pid, flush=True)
time.sleep(60)
"""


def start_orphan(home: Path, title: str) -> tuple[subprocess.Popen[str], int]:
    home.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, title], cwd=home, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        return process, int(output.readline())


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_workers_of_this_home_are_ended_with_their_children(tmp_path: Path) -> None:
    mine, task = start_orphan(tmp_path / "mine", f"{WORKER}: <idle>")
    others = [
        start_orphan(tmp_path / "other", f"{WORKER}: <idle>"),
        start_orphan(tmp_path / "mine", "airflow api-server"),
    ]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sluice_ops.local.airflow_scheduler", "/bin/echo", "scheduling"],
            env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "mine")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "scheduling\n"
        assert "killed 2 processes of an earlier scheduler" in done.stderr
        assert mine.wait(5) == -9
        assert has_ended(task)
        assert all(process.poll() is None and not has_ended(child) for process, child in others)
    finally:
        for process, child in others:
            process.kill()
            process.wait()
            psutil.Process(child).kill()
