"""Run a command of a start; Ctrl-C or another step's failure kills it with all its children."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from sluice_ops.local.start.starting import LOG_LINES, HaltedError
from sluice_ops.site.installation import PlatformError

POLL_SECONDS = 0.1


def run_to_end(
    command: list[str], environment: dict[str, str], log: Path, halt: threading.Event, seconds: float
) -> None:
    """Return when the command has succeeded; `seconds` is its time limit.

    PlatformError quotes the end of the log if the command fails or takes longer. HaltedError if
    `halt` is set.
    """
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    deadline = time.monotonic() + seconds
    try:
        while process.poll() is None and time.monotonic() < deadline:
            if halt.wait(POLL_SECONDS):
                raise HaltedError
    finally:
        late = process.poll() is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        last = "".join(f"\n    {line}" for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        outcome = (
            f"took longer than {seconds:.0f} s and was killed"
            if late
            else f"failed (exit code {process.returncode})"
        )
        message = (
            f"`{' '.join(command)}` {outcome}. Correct the cause and start again. The end of {log}:{last}"
        )
        raise PlatformError(message)
