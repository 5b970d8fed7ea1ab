"""Supervisord, which runs the platform's programs: its configuration, its start and its control.

This module controls supervisord through its Unix socket.
"""

import os
import subprocess
import time
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

from supervisor.xmlrpc import Faults, SupervisorTransport

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.priority import SERVICES, in_group, niced, prepare
from sluice_ops.local.start.service import Program, Service
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import PlatformError

STOPPED = ("STOPPED", "EXITED", "FATAL", "UNKNOWN")
NO_WAIT = False


def render(layout: Layout, services: Iterable[Service]) -> str:
    """Return supervisord's configuration.

    No program starts automatically: `up` starts each program once the services that it needs are
    ready.
    """
    user = "user=root\n" if os.geteuid() == 0 else ""
    head = f"""\
[unix_http_server]
file={_escaped(str(layout.socket))}
chmod=0700

[supervisord]
{user}logfile={_escaped(str(layout.logs / "supervisord.log"))}
logfile_maxbytes=5MB
logfile_backups=1
pidfile={_escaped(str(layout.pidfile))}
directory={_escaped(str(layout.home))}
nocleanup=true
minfds=8192

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
    return head + "".join(_program(layout, service.name, service.program) for service in services)


def _program(layout: Layout, name: str, program: Program) -> str:
    command = niced(layout, program.command, program.nice)
    environment = {
        "SLUICE_SERVICE": name,
        "SLUICE_HOME": str(layout.home),
        "SLUICE_SITE": str(layout.site),
        "SLUICE_ENDPOINTS": str(layout.endpoints),
    }
    environment |= program.environment
    # supervisord removes quotation marks of both kinds from both ends of a value
    if quoted := [key for key, value in environment.items() if '"' in value or value != value.strip("'")]:
        message = (
            f"{name}: {', '.join(quoted)} contains a quotation mark, which supervisord does not support; "
            "use a folder without quotation marks in its path"
        )
        raise PlatformError(message)
    pairs = ",".join(f'{key}="{_escaped(value)}"' for key, value in environment.items())
    user = f"user={program.user}\n" if program.user else ""
    return f"""
[program:{name}]
command={" ".join(_quoted(part) for part in command)}
environment={pairs}
directory={_escaped(str(program.directory or layout.home))}
{user}autostart=false
{_restart(program)}
startsecs=0
startretries=1000
stopsignal={program.stop_signal}
stopwaitsecs={program.stop_seconds}
stopasgroup=false
killasgroup=true
redirect_stderr=true
stdout_logfile={_escaped(str(log_of(layout, name)))}
stdout_logfile_maxbytes=20MB
stdout_logfile_backups=2
"""


def _restart(program: Program) -> str:
    if program.last_exit is not None:
        return f"autorestart=unexpected\nexitcodes={program.last_exit}"
    return f"autorestart={'false' if program.once else 'true'}"


def _escaped(value: str) -> str:
    return value.replace("%", "%%")


def _quoted(part: str) -> str:
    escaped = _escaped(part).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(letter in part for letter in ' ;"\\') else escaped


def log_of(layout: Layout, name: str) -> Path:
    """Return the log file of a program's output."""
    return layout.logs / f"{name}.log"


class Supervisor:
    """The supervisord of one home, running or not."""

    def __init__(self, layout: Layout) -> None:
        """Control the supervisord of this installation."""
        self._layout = layout

    def _call(self, method: str, *arguments: Any) -> Any:
        proxy = ServerProxy(
            "http://127.0.0.1",
            transport=SupervisorTransport(None, None, f"unix://{self._layout.socket}"),
            allow_none=True,
        )
        with proxy:
            return getattr(proxy.supervisor, method)(*arguments)

    def alive(self) -> bool:
        """Return True if supervisord answers."""
        try:
            return bool(self._call("getState")["statename"] == "RUNNING")
        except (OSError, HTTPException, Fault):
            return False

    def launch(self, services: Iterable[Service]) -> None:
        """Start supervisord, or give the running one its new configuration.

        Running programs whose configuration did not change are unaffected. PlatformError if
        supervisord does not start.
        """
        prepare(self._layout)
        config = self._layout.conf / "supervisord.conf"
        write_private(config, render(self._layout, services))
        if self.alive():
            self._reload()
            return
        self._layout.socket.unlink(missing_ok=True)
        command = in_group(
            self._layout, SERVICES, (str(self._layout.python.parent / "supervisord"), "-c", str(config))
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._layout.home)
        deadline = time.monotonic() + 15
        while not self.alive():
            if done.returncode != 0 or time.monotonic() > deadline:
                errors = [
                    line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Error")
                ][:1]
                reason = " ".join(errors)[:200] or "no answer on its socket"
                message = (
                    f"supervisord did not start: {reason}; correct the cause and start again; "
                    f"log: {self._layout.logs / 'supervisord.log'}"
                )
                raise PlatformError(message)
            time.sleep(0.05)

    def _reload(self) -> None:
        added, changed, removed = self._call("reloadConfig")[0]
        for name in (*changed, *removed):
            self._call("stopProcessGroup", name)
            self._call("removeProcessGroup", name)
        for name in (*added, *changed):
            self._call("addProcessGroup", name)

    def states(self) -> dict[str, dict[str, Any]]:
        """Return supervisord's information on each program, by name; empty if it does not run."""
        try:
            return {info["name"]: info for info in self._call("getAllProcessInfo")}
        except (OSError, HTTPException, Fault):
            return {}

    def start(self, name: str) -> None:
        """Start a program unless it runs already; do not wait for it."""
        try:
            self._call("startProcess", name, NO_WAIT)
        except Fault as fault:
            if fault.faultCode != Faults.ALREADY_STARTED:
                log = log_of(self._layout, name)
                message = f"supervisord cannot start {name} ({fault.faultString}); log: {log}"
                raise PlatformError(message) from fault

    def stop(self, name: str, *, wait: bool = True) -> None:
        """Stop a program if it runs; `wait`: return when it has ended."""
        try:
            self._call("stopProcess", name, wait)
        except Fault as fault:
            if fault.faultCode not in (Faults.NOT_RUNNING, Faults.BAD_NAME):
                raise

    def shutdown(self, seconds: float = 60.0) -> None:
        """Stop all programs and supervisord; PlatformError if they do not end within `seconds`."""
        pid = self._call("getPID")
        self._call("shutdown")
        deadline = time.monotonic() + seconds
        while Path(f"/proc/{pid}").exists():
            if time.monotonic() > deadline:
                message = (
                    f"supervisord (pid {pid}) has not ended within {seconds:.0f} s; "
                    f"its programs: {self.states()}; run `sluice down` again"
                )
                raise PlatformError(message)
            time.sleep(0.1)
