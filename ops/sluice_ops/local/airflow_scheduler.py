"""`python -m sluice_ops.local.airflow_scheduler COMMAND…`: start Airflow's scheduler.

First, kill the leftovers of a killed scheduler. Its executor's workers outlive it and keep its
database connections open. These connections hold the locks of the transaction in which the
scheduler was killed, so no other scheduler could schedule the locked runs.
"""

import os
import sys
from pathlib import Path

import psutil

WORKER = "airflow worker -- LocalExecutor"
"""The process title of an executor's worker."""
SECONDS = 5.0
"""Limit for killed processes to disappear."""


def leftovers(home: Path) -> list[psutil.Process]:
    """Return the workers of the Airflow in `home`, and all their children.

    Before the scheduler starts, all of them are leftovers.
    """
    processes: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if " ".join(process.cmdline()).startswith(WORKER) and process.cwd() == str(home):
                processes += [process, *process.children(recursive=True)]
        except (psutil.Error, OSError):
            continue
    return processes


def main() -> None:
    """Kill the leftovers and become the scheduler.

    Airflow notices that the killed tasks send no heartbeat, and retries them.
    """
    processes = leftovers(Path(os.environ["AIRFLOW_HOME"]).resolve())
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=SECONDS)
    if processes:
        sys.stderr.write(
            f"killed {len(processes)} processes of an earlier scheduler; Airflow retries their tasks\n"
        )
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 — the command of the service


if __name__ == "__main__":
    main()
