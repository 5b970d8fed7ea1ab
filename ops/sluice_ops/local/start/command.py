"""Run a command that a start needs once, so that Ctrl-C and another step's failure end it too, with all that it has started."""

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
    command: list[str], environment: dict[str, str], log: Path, halt: threading.Event, patience: float
) -> None:
    """Return when it has ended well; PlatformError quotes the end of its log otherwise."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    until = time.monotonic() + patience
    try:
        while process.poll() is None and time.monotonic() < until:
            if halt.wait(POLL_SECONDS):
                raise HaltedError
    finally:
        late = process.poll() is None
        if late:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        end = "".join(f"\n    {line}" for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        how = f"was ended after {patience:.0f} s" if late else f"has failed (exit code {process.returncode})"
        message = f"`{' '.join(command)}` {how}. The end of {log}:{end}"
        raise PlatformError(message)
