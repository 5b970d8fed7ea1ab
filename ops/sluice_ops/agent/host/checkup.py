"""Check a new host, and a host after a requested reboot, as `sluice doctor --host` does."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

log = structlog.get_logger()

TIMEOUT_SECONDS = 60.0
AGAIN_SECONDS = 10.0
"""The time between two checks of a host that is not sound: a service may be back by then."""
NOT_OF_HOST = "alerts"
"""The check of alerts that Airflow could not send, which says nothing about the host."""


def doctor_of(host: str) -> tuple[str, ...]:
    """Return the command that checks a host of the site file."""
    return (str(Path(sys.executable).with_name("sluice")), "doctor", "--host", host, "--json")


class Checkup:
    """Checks the host in a thread until nothing is bad."""

    def __init__(
        self, command: Sequence[str] | None, lost_capacity: Callable[[], tuple[str, ...]] = tuple
    ) -> None:
        """Check by `command`, and what the machine lost over a reboot. None: nothing is to be
        checked.
        """
        self._command = command
        self._lost_capacity = lost_capacity
        self._over = threading.Event()
        self.findings: tuple[str, ...] | None = () if command is None else None
        """The faults of the last check. None: the first check has not ended."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called after each check."""
        if self._command is not None:
            threading.Thread(
                target=self._run, args=(self._command, wake), name="checkup", daemon=True
            ).start()

    def stop(self) -> None:
        """Check no more."""
        self._over.set()

    def _run(self, command: Sequence[str], wake: Callable[[], None]) -> None:
        while not self._over.is_set():
            self.findings = (*bad_findings(command), *self._lost_capacity())
            if self.findings:
                log.warning(
                    "the host is not sound; a reboot or a canary waits for it, and the check repeats",
                    bad=self.findings,
                    next_check_seconds=AGAIN_SECONDS,
                )
            else:
                log.info("the host is sound")
            wake()
            if not self.findings:
                return
            self._over.wait(AGAIN_SECONDS)


def bad_findings(command: Sequence[str]) -> tuple[str, ...]:
    """Return what the doctor finds bad, or why it gave no answer."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        findings = json.loads(answer.stdout)["findings"]
        return tuple(
            f"{finding['thing']}: {finding['sentence']}"
            for finding in findings
            if finding["verdict"] == "bad" and finding["thing"] != NOT_OF_HOST
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        return (f"{' '.join(command)} gave no answer: {error!r}",)
