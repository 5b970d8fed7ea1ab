"""Find every process of an installation: programs under supervisord, and all their children.

Slots and drivers outlive the programs that started them. Each process inherits SLUICE_SERVICE and
SLUICE_HOME. Some processes of PostgreSQL and Airflow overwrite their environment in /proc; their
parents or their working directory identify them.
"""

import os
import signal
import subprocess

import psutil

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.supervisord import Supervisor

GRACE_SECONDS = 5.0
"""Limit for a process to end after a signal."""


def _own_name(process: psutil.Process, layout: Layout) -> str | None:
    """Return the unit, or else the service, in the process's own environment; None without one.

    A process of Airflow without such an environment is named `airflow`, by its working directory.
    """
    try:
        environment = process.environ()
        if environment.get("SLUICE_HOME") == str(layout.home) and "SLUICE_SERVICE" in environment:
            return environment.get("SLUICE_UNIT") or environment["SLUICE_SERVICE"]
        if process.cwd() == str(layout.airflow) and "airflow" in " ".join(process.cmdline()):
            return "airflow"
    except (psutil.Error, OSError):
        return None
    return None


def processes(layout: Layout) -> dict[psutil.Process, str]:
    """Return each process of this home, with the name of its unit or service."""
    supervised = {info["pid"]: name for name, info in Supervisor(layout).states().items() if info["pid"]}
    everything = list(psutil.process_iter(["ppid"]))
    parents = {process.pid: process.info["ppid"] for process in everything}
    own_names = {process.pid: name for process in everything if (name := _own_name(process, layout))}
    by_process: dict[psutil.Process, str] = {}
    for process in everything:
        name = own_names.get(process.pid)
        pid: int | None = process.pid
        while pid and (name is None or (name == "airflow" and supervised)):
            name = supervised.get(pid) or own_names.get(pid) or name
            if pid in supervised:
                break
            pid = parents.get(pid)
        if name is not None:
            by_process[process] = name
    return by_process


def end_units(layout: Layout) -> None:
    """End the slots and drivers of every host: run each agent with `--stop-all`."""
    folder = layout.home / "hosts"
    hosts = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    environment = os.environ | {
        "SLUICE_HOME": str(layout.home),
        "SLUICE_SITE": str(layout.site),
        "SLUICE_ENDPOINTS": str(layout.endpoints),
    }
    ending = [
        subprocess.Popen(
            [str(layout.python), "-m", "sluice_ops.agent", "--stop-all", "--host", host],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for host in hosts
    ]
    for process in ending:
        process.wait()


def kill_leftovers(layout: Layout) -> list[str]:
    """End all processes that are left after a stop, and return the names of their services."""
    left = {process: name for process, name in processes(layout).items() if process.pid != os.getpid()}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            if process.is_running():
                process.send_signal(number)
        psutil.wait_procs(list(left), timeout=GRACE_SECONDS)
    return sorted(set(left.values()))
