"""Reboots asked for by the assignment: each is done once, remembered on disk across the reboot itself."""

import os
import subprocess
import sys
from pathlib import Path

import structlog

from sluice_ops.agent.host.processes import boot_id
from sluice_ops.agent.host.store import HostFolder, RebootRecord, log_write_errors

log = structlog.get_logger()


class Rebooter:
    """Carries out what `assignment.reboot` asks for."""

    def __init__(self, folder: HostFolder, host: str, command: tuple[str, ...]) -> None:
        """Reboot `host` with the site's command."""
        self._folder = folder
        self._host = host
        self._command = command

    def came_back(self) -> None:
        """At the agent's start: the reboot that was under way is done when the machine has booted since.

        Else it is forgotten: whether it is still to be done the assignment tells, for since then the host may be in use again.
        """
        record = self._folder.reboot()
        if record is None or record.done:
            return
        if record.boot == boot_id():
            log.warning("a reboot was asked for and did not happen", reboot=record.asked)
            self._folder.forget_reboot()
            return
        with log_write_errors("that the reboot is done: it is told at the agent's next start"):
            self._folder.keep_reboot(record.model_copy(update={"done": True}))
        log.info("back from a reboot", reboot=record.asked)

    def __call__(self, asked: str) -> None:
        """Do it, unless it was done, or is under way."""
        record = self._folder.reboot()
        if record is not None and record.asked == asked:
            return
        record = RebootRecord(asked=asked, boot=boot_id())
        try:
            self._folder.keep_reboot(record)
        except OSError as error:  # not remembered, it would be done again and again
            log.warning("the reboot waits: it cannot be remembered on disk", reboot=asked, error=str(error))
            return
        self._run(record)

    def _run(self, record: RebootRecord) -> None:
        words = [word.replace("{host}", self._host) for word in self._command]
        log.warning("rebooting", reboot=record.asked, command=words)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        try:
            subprocess.Popen(
                words, start_new_session=True, stdin=subprocess.DEVNULL, env=os.environ | {"PATH": path}
            )
        except OSError as error:
            log.warning(
                "the reboot command cannot run: correct `reboot` in the site file",
                command=words,
                error=str(error),
            )
