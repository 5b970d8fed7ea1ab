"""Every process of one installation: the programs under supervisord, and what they have started, in containers that outlive them too.

Each program carries SLUICE_SERVICE and SLUICE_HOME in its environment and hands them on. Some (PostgreSQL's and Airflow's) overwrite what
/proc shows of it; those are told by their parents, or by the folder that they work in.
"""

import os
import signal
import subprocess

import psutil

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.supervisord import Supervisor

GRACE_SECONDS = 5.0


def _by_itself(process: psutil.Process, where: Layout) -> str | None:
    """Return what a process says that it belongs to; a unit's name goes before its service's."""
    try:
        environment = process.environ()
        if environment.get("SLUICE_HOME") == str(where.home) and "SLUICE_SERVICE" in environment:
            return environment.get("SLUICE_UNIT") or environment["SLUICE_SERVICE"]
        if process.cwd() == str(where.airflow) and "airflow" in " ".join(process.cmdline()):
            return "airflow"
    except (psutil.Error, OSError):
        return None
    return None


def processes(where: Layout) -> dict[psutil.Process, str]:
    """Return each process of this home with the unit or the service that it belongs to."""
    supervised = {info["pid"]: name for name, info in Supervisor(where).states().items() if info["pid"]}
    everything = list(psutil.process_iter(["ppid"]))
    parents = {process.pid: process.info["ppid"] for process in everything}
    said = {process.pid: name for process in everything if (name := _by_itself(process, where))}
    found: dict[psutil.Process, str] = {}
    for process in everything:
        name = said.get(process.pid)
        step: int | None = process.pid
        while step and (name is None or (name == "airflow" and supervised)):
            name = supervised.get(step) or said.get(step) or name
            if step in supervised:
                break
            step = parents.get(step)
        if name is not None:
            found[process] = name
    return found


def end_units(where: Layout) -> None:
    """Have every host's slots and drivers ended by the agent's own means."""
    folder = where.home / "hosts"
    hosts = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    environment = os.environ | {
        "SLUICE_HOME": str(where.home),
        "SLUICE_SITE": str(where.site),
        "SLUICE_ENDPOINTS": str(where.endpoints),
    }
    ending = [
        subprocess.Popen(
            [str(where.python), "-m", "sluice_ops.agent", "--stop-all", "--host", host],
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
    found = {process: name for process, name in processes(where).items() if process.pid != os.getpid()}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in found:
            if process.is_running():
                process.send_signal(number)
        psutil.wait_procs(list(found), timeout=GRACE_SECONDS)
    return sorted(set(found.values()))
