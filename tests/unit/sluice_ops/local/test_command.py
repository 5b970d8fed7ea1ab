"""A command that a start needs ends with the start, and its failure is reported."""

import sys
import threading
import time
from pathlib import Path

import pytest

from sluice_ops.local.start.command import run_to_end
from sluice_ops.local.start.starting import HaltedError
from sluice_ops.site.installation import PlatformError

SLEEPER = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]


def has_ended(log: Path) -> bool:
    words = log.read_text().split()
    return not words or not Path(f"/proc/{words[0]}").exists()


def test_a_command_over_its_time_limit_is_killed_and_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(PlatformError, match="took longer than 0 s and was killed"):
        run_to_end(SLEEPER, {}, log, threading.Event(), 0.3)
    assert has_ended(log)


def test_the_output_of_a_failed_command_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"failed \(exit code 3\)(.|\n)*no such topic"):
        run_to_end(
            ["sh", "-c", "echo no such topic; exit 3"],
            {"PATH": "/bin:/usr/bin"},
            tmp_path / "log",
            threading.Event(),
            10,
        )


@pytest.mark.parametrize("kind", [HaltedError, KeyboardInterrupt])
def test_a_command_is_killed_when_the_start_is_cancelled(tmp_path: Path, kind: type[BaseException]) -> None:
    class Halt(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            time.sleep(timeout or 0)
            if kind is KeyboardInterrupt:
                raise KeyboardInterrupt
            return True

    log = tmp_path / "log"
    with pytest.raises(kind):
        run_to_end(SLEEPER, {}, log, Halt(), 10)
    assert has_ended(log)
