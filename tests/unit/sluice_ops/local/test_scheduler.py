"""What a killed scheduler left behind is ended before the next one starts, and nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from sluice_ops.local.airflow_scheduler import WORKER

LEFT = """
import os, subprocess, sys, time
from setproctitle import setproctitle
child = subprocess.Popen(["sleep", "60"])
setproctitle(sys.argv[1])
print(child.pid, flush=True)
time.sleep(60)
"""


def left(home: Path, title: str) -> tuple[subprocess.Popen[str], int]:
    home.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", LEFT, title], cwd=home, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as told:
        return process, int(told.readline())


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_workers_of_this_home_are_ended_with_what_they_started(tmp_path: Path) -> None:
    mine, task = left(tmp_path / "mine", f"{WORKER}: <idle>")
    others = [left(tmp_path / "other", f"{WORKER}: <idle>"), left(tmp_path / "mine", "airflow api-server")]
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
        assert gone(task)
        assert all(process.poll() is None and not gone(child) for process, child in others)
    finally:
        for process, child in others:
            process.kill()
            process.wait()
            psutil.Process(child).kill()
