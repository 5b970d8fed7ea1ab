"""`sluice simulate` on a small cluster: it measures what it reports, and leaves nothing behind,
even if interrupted.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
SLUICE = str(Path(sys.executable).with_name("sluice"))

pytestmark = pytest.mark.timeout(400)


def begin(tmp_path, *words):
    return subprocess.Popen(
        [SLUICE, "simulate", *words],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def leftover_pids(tmp_path):
    here = str(tmp_path)
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(here in word for word in process.info["cmdline"] or ())
    ]


@pytest.mark.long
def test_fifty_hosts_are_measured_and_their_losses_answered(tmp_path):
    process = begin(tmp_path, "--hosts", "50", "--slots", "400", "--json")
    out, log = process.communicate()
    assert process.returncode == 0, log
    measured = json.loads(out)
    assert (measured["hosts"], measured["slots"], measured["sessions"]) == (50, 400, 50)
    assert 0 < measured["plan_seconds"] < 5
    assert measured["losses"] == 2
    assert 0 <= measured["loss_to_assignment_p99_seconds"] < 8, (
        "the controller does not wait for its next full pass"
    )
    longest = [measured["loss_of_driver_max_seconds"], measured["loss_without_driver_max_seconds"]]
    assert (
        max(seconds for seconds in longest if seconds is not None)
        == measured["loss_to_assignment_max_seconds"]
    )
    assert (longest[0] is None) == (measured["losses_of_drivers"] == 0)
    assert 2 < measured["failover_seconds"] < 30
    assert 20 * 2**20 < measured["controller_peak_bytes"] < 2**30
    assert measured["znodes"] > 50 * 4
    assert 40 < measured["ephemerals"] <= 60
    assert measured["watches"] > 50 * 4
    assert set(measured["targets"]) == {
        "plan_seconds",
        "loss_to_assignment_p99_seconds",
        "failover_seconds",
        "controller_peak_bytes",
    }
    assert "all hosts are registered" in log
    assert not list(tmp_path.iterdir())
    assert not leftover_pids(tmp_path)


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    process = begin(tmp_path, "--hosts", "50", "--slots", "400")
    while "starts and reads all nodes" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 130, log
    assert "Interrupted: the simulation has stopped, and its processes and files are removed." in log
    assert not list(tmp_path.iterdir())
    assert not leftover_pids(tmp_path)


def test_wrong_numbers_are_refused_at_once(tmp_path):
    began = time.monotonic()
    process = begin(tmp_path, "--hosts", "2", "--slots", "400")
    _, message = process.communicate()
    assert process.returncode == 2
    assert message == "--hosts 2: choose a number from 4 to 20000\n"
    assert time.monotonic() - began < 20
