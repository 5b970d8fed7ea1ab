"""`python -m sluice_ops.local.airflow_scheduler COMMAND…`: end what a killed scheduler has left behind, then start Airflow's scheduler.

The workers of its executor outlive it, and hold its connections to the database open. A transaction in which it was killed keeps its locks
with them, and no other scheduler would ever touch the runs that it was about to schedule.
"""

import os
import sys
from pathlib import Path

import psutil

WORKER = "airflow worker -- LocalExecutor"
"""How Airflow calls them in the list of processes."""
SECONDS = 5.0


def leftovers(home: Path) -> list[psutil.Process]:
    """Return the workers of an installation's Airflow and what they have started; before its scheduler starts, none of them has a use."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if " ".join(process.cmdline()).startswith(WORKER) and process.cwd() == str(home):
                found += [process, *process.children(recursive=True)]
        except (psutil.Error, OSError):
            continue
    return found


def main() -> None:
    """End them, and become the scheduler. What they were doing is found without a heartbeat, and is tried again."""
    found = leftovers(Path(os.environ["AIRFLOW_HOME"]).resolve())
    for process in found:
        process.kill()
    psutil.wait_procs(found, timeout=SECONDS)
    if found:
        sys.stderr.write(
            f"ended {len(found)} processes of a scheduler that was killed; their tasks are tried again\n"
        )
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 — the command that the service names


if __name__ == "__main__":
    main()
