"""Supervisord keeps the platform's programs running: its configuration, starting it, and speaking to it over its Unix socket."""

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


def render(where: Layout, services: Iterable[Service]) -> str:
    """Write supervisord's configuration. Nothing starts by itself: `up` starts each program when what it needs is there."""
    user = "user=root\n" if os.geteuid() == 0 else ""
    head = f"""\
[unix_http_server]
file={_escaped(str(where.socket))}
chmod=0700

[supervisord]
{user}logfile={_escaped(str(where.logs / "supervisord.log"))}
logfile_maxbytes=5MB
logfile_backups=1
pidfile={_escaped(str(where.pidfile))}
directory={_escaped(str(where.home))}
nocleanup=true
minfds=8192

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""
    return head + "".join(_program(where, service.name, service.program) for service in services)


def _program(where: Layout, name: str, program: Program) -> str:
    command = niced(where, program.command, program.nice)
    environment = {
        "SLUICE_SERVICE": name,
        "SLUICE_HOME": str(where.home),
        "SLUICE_SITE": str(where.site),
        "SLUICE_ENDPOINTS": str(where.endpoints),
    }
    environment |= program.environment
    # supervisord takes the quotes off both ends of a value, of either kind
    if quoted := [key for key, value in environment.items() if '"' in value or value != value.strip("'")]:
        message = f"{name}: {', '.join(quoted)} holds a quotation mark, which supervisord cannot take; use a folder without one"
        raise PlatformError(message)
    pairs = ",".join(f'{key}="{_escaped(value)}"' for key, value in environment.items())
    user = f"user={program.user}\n" if program.user else ""
    return f"""
[program:{name}]
command={" ".join(_quoted(part) for part in command)}
environment={pairs}
directory={_escaped(str(program.directory or where.home))}
{user}autostart=false
autorestart={"false" if program.once else "true"}
startsecs=0
startretries=1000
stopsignal={program.stop_signal}
stopwaitsecs={program.stop_seconds}
stopasgroup=false
killasgroup=true
redirect_stderr=true
stdout_logfile={_escaped(str(log_of(where, name)))}
stdout_logfile_maxbytes=20MB
stdout_logfile_backups=2
"""


def _escaped(value: str) -> str:
    return value.replace("%", "%%")


def _quoted(part: str) -> str:
    escaped = _escaped(part).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(letter in part for letter in ' ;"\\') else escaped


def log_of(where: Layout, name: str) -> Path:
    """Where a program's output goes."""
    return where.logs / f"{name}.log"


class Supervisor:
    """The running supervisord of one home."""

    def __init__(self, where: Layout) -> None:
        """Speak to the one of `where`, whether it runs or not."""
        self._where = where

    def _ask(self, method: str, *arguments: Any) -> Any:
        proxy = ServerProxy(
            "http://127.0.0.1",
            transport=SupervisorTransport(None, None, f"unix://{self._where.socket}"),
            allow_none=True,
        )
        with proxy:
            return getattr(proxy.supervisor, method)(*arguments)

    def alive(self) -> bool:
        """Tell whether it answers."""
        try:
            return bool(self._ask("getState")["statename"] == "RUNNING")
        except (OSError, HTTPException, Fault):
            return False

    def launch(self, services: Iterable[Service]) -> None:
        """Start supervisord, or hand the running one its new configuration; programs that run and did not change stay as they are."""
        prepare(self._where)
        config = self._where.conf / "supervisord.conf"
        write_private(config, render(self._where, services))
        if self.alive():
            self._reload()
            return
        self._where.socket.unlink(missing_ok=True)
        command = in_group(
            self._where, SERVICES, (str(self._where.python.parent / "supervisord"), "-c", str(config))
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._where.home)
        until = time.monotonic() + 15
        while not self.alive():
            if done.returncode != 0 or time.monotonic() > until:
                said = [
                    line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Error")
                ][:1]
                reason = " ".join(said)[:200] or "no answer on its socket"
                message = f"supervisord did not start: {reason}; log: {self._where.logs / 'supervisord.log'}"
                raise PlatformError(message)
            time.sleep(0.05)

    def _reload(self) -> None:
        added, changed, removed = self._ask("reloadConfig")[0]
        for name in (*changed, *removed):
            self._ask("stopProcessGroup", name)
            self._ask("removeProcessGroup", name)
        for name in (*added, *changed):
            self._ask("addProcessGroup", name)

    def states(self) -> dict[str, dict[str, Any]]:
        """Return what it knows of every program, by name; nothing when it does not run."""
        try:
            return {info["name"]: info for info in self._ask("getAllProcessInfo")}
        except (OSError, HTTPException, Fault):
            return {}

    def start(self, name: str) -> None:
        """Start a program; one that runs already stays."""
        try:
            self._ask("startProcess", name, NO_WAIT)
        except Fault as fault:
            if fault.faultCode != Faults.ALREADY_STARTED:
                message = f"{name}: cannot be started ({fault.faultString}); log: {log_of(self._where, name)}"
                raise PlatformError(message) from fault

    def stop(self, name: str, *, wait: bool = True) -> None:
        """Stop a program; one that does not run is fine."""
        try:
            self._ask("stopProcess", name, wait)
        except Fault as fault:
            if fault.faultCode not in (Faults.NOT_RUNNING, Faults.BAD_NAME):
                raise

    def shutdown(self, patience: float = 60.0) -> None:
        """Stop every program and supervisord itself; return when it is gone."""
        pid = self._ask("getPID")
        self._ask("shutdown")
        until = time.monotonic() + patience
        while Path(f"/proc/{pid}").exists():
            if time.monotonic() > until:
                message = f"supervisord (pid {pid}) has not ended within {patience:.0f} s; what is left: {self.states()}"
                raise PlatformError(message)
            time.sleep(0.1)
