"""Every process of one installation, told by its environment: what runs in containers outlives its agent and supervisord.

Each program under supervisord carries SLUICE_SERVICE and SLUICE_HOME, and hands them on to all that it starts.
"""

import os
import signal
import subprocess
from collections.abc import Iterator

import psutil

from ops.platform.layout import Layout

GRACE_SECONDS = 5.0


def processes(where: Layout) -> Iterator[tuple[psutil.Process, str]]:
    """Yield each process of this home with the unit or the service that it belongs to."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if environment.get("SLUICE_HOME") == str(where.home) and "SLUICE_SERVICE" in environment:
            yield process, environment.get("SLUICE_UNIT") or environment["SLUICE_SERVICE"]


def end_units(where: Layout) -> None:
    """Have every host's slots and drivers ended by the agent's own means."""
    folder = where.home / "hosts"
    hosts = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    environment = os.environ | {"SLUICE_HOME": str(where.home), "SLUICE_SITE": str(where.site), "SLUICE_ENDPOINTS": str(where.endpoints)}
    ending = [
        subprocess.Popen(
            [str(where.python), "-m", "ops.agent", "--stop-all", "--host", host],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for host in hosts
    ]
    for process in ending:
        process.wait()


def kill_leftovers(where: Layout) -> list[str]:
    """End what is still there after everything was asked to stop, and return what that was."""
    found = [(process, name) for process, name in processes(where) if process.pid != os.getpid()]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process, _ in found:
            if process.is_running():
                process.send_signal(number)
        psutil.wait_procs([process for process, _ in found], timeout=GRACE_SECONDS)
    return sorted({name for _, name in found})
