"""Reboot the host when the assignment requests it.

A file remembers each request across the reboot, so that the agent reboots once for each request.
"""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import structlog

from sluice_ops.agent.host.processes import boot_id
from sluice_ops.agent.host.store import HostFolder, RebootRecord, log_write_errors

log = structlog.get_logger()

SENTINEL = Path("/var/run/reboot-required")
"""Debian and Ubuntu make this file after an update that needs a reboot."""


MEMORY_PART = 0.98
"""The part of its memory that a machine has after a reboot: another kernel may keep some."""


def is_reboot_needed() -> bool:
    """Return whether an update of the machine needs a reboot."""
    return SENTINEL.exists()


def boot_of(last: RebootRecord | None) -> str:
    """Return an id that changes with each boot of the host; `last` is its last requested reboot.

    Hosts of the embedded platform share one kernel. Their requested reboots count as boots.
    """
    kernel = boot_id()
    return kernel if last is None or not last.done or last.boot != kernel else f"{kernel}/{last.asked}"


def capacity() -> tuple[int, int]:
    """Return the number of processors of the machine, and its memory in MiB."""
    return os.cpu_count() or 1, psutil.virtual_memory().total >> 20


class Rebooter:
    """Carries out the requests in `assignment.reboot` with the site file's command `reboot`."""

    def __init__(self, folder: HostFolder, host: str, command: tuple[str, ...]) -> None:
        self._folder = folder
        self._host = host
        self._command = command

    def check_reboot(self) -> None:
        """At the agent's start: record the last reboot as done if the machine has booted since.

        If the machine has not booted, forget the request, because the host may be in use again. If
        the assignment still requests the reboot, the agent tries again.
        """
        record = self._folder.reboot()
        if record is None or record.done:
            return
        if record.boot == boot_id():
            log.warning(
                "the requested reboot did not happen; the agent tries again if the assignment still "
                "requests the reboot",
                reboot=record.asked,
            )
            self._folder.forget_reboot()
            return
        with log_write_errors(
            "the completed reboot (reboot.json); the agent reports the reboot after its next start"
        ):
            self._folder.write_reboot(record.model_copy(update={"done": True}))
        log.info("the host has rebooted", reboot=record.asked)

    def has_rebooted(self) -> bool:
        """Return whether the last request is done."""
        record = self._folder.reboot()
        return record is not None and record.done

    def lost_capacity(self) -> tuple[str, ...]:
        """Return what the machine has lost over the last requested reboot; empty: nothing."""
        record, (processors, memory) = self._folder.reboot(), capacity()
        if record is None or not record.done:
            return ()
        if processors >= record.processors and memory >= record.memory * MEMORY_PART:
            return ()
        now = f"{processors} processors and {memory:,} MiB"
        before = f"{record.processors} and {record.memory:,} MiB"
        return (f"capacity: the machine has {now}; before the reboot it had {before}",)

    def __call__(self, request: str) -> None:
        """Reboot the host for the operation `request`, unless a reboot for it is done or under
        way.
        """
        record = self._folder.reboot()
        if record is not None and record.asked == request:
            return
        processors, memory = capacity()
        record = RebootRecord(asked=request, boot=boot_id(), processors=processors, memory=memory)
        try:
            self._folder.write_reboot(record)
        except OSError as error:  # without the file, the agent would reboot again and again
            log.warning(
                "the reboot waits: reboot.json cannot be written; free disk space, the agent retries",
                reboot=request,
                error=str(error),
            )
            return
        self._run(record)

    def _run(self, record: RebootRecord) -> None:
        words = [word.replace("{host}", self._host) for word in self._command]
        log.warning("the agent reboots the host, as requested", reboot=record.asked, command=words)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        try:
            subprocess.Popen(
                words, start_new_session=True, stdin=subprocess.DEVNULL, env=os.environ | {"PATH": path}
            )
        except OSError as error:
            log.warning(
                "the host does not reboot: the reboot command cannot run; correct `reboot` in the site file, "
                "and restart the agent",
                command=words,
                error=str(error),
            )
