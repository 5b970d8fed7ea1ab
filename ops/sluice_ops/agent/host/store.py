"""The agent's files: units, last assignment, credential, requested reboot.

The next agent reads them to adopt the units, and to continue while ZooKeeper does not answer.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import structlog
from pydantic import ValidationError

from sluice_ops.agent.host.processes import Process
from sluice_ops.model.access import HostCredential
from sluice_ops.model.assignment import Assignment, FaultDone, Unit
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Frozen
from sluice_ops.process.logs import is_jvm_notice
from sluice_ops.site.files import write_private

log = structlog.get_logger()

M = TypeVar("M", bound=Frozen)

LOG_BYTES = 5 << 20
"""At this size a unit's log is moved to `log.1`, which replaces the older `log.1`."""
ENDED_LOGS = 20
"""The ended units whose logs are kept."""
STACK_FRAME = re.compile(r"\s+(at [\w.$<>/]+\(|\.\.\. \d+ more)")
"""A line below a Java exception, whose first line says what happened."""
LAST_BYTES = 8192
BLOCK_BYTES = 512
"""The unit in which the kernel counts a file's disk space."""
CREDENTIAL_BYTES = 24
"""The random bytes of a credential."""
CREDENTIAL = re.compile(r"[\w-]{32}", re.ASCII)
"""A credential in base64: 24 bytes are 32 characters."""


class UnitRecord(Frozen):
    """`unit.json`: the facts about a unit that the kernel does not know."""

    unit: Unit
    boot: str
    """The kernel's id of the machine's boot in which the unit was started."""
    started_at: float
    restarts: int = 0
    failures: int = 0
    stopping_at: float | None = None
    ended_at: float | None = None
    exit: str | None = None


class RebootRecord(Frozen):
    """`reboot.json`: the last requested reboot."""

    asked: str
    """The id of the operation that requested the reboot."""
    boot: str
    done: bool = False
    processors: int = 0
    """The processors of the machine before the reboot; 0: an older agent has not counted them."""
    memory: int = 0
    """The memory of the machine before the reboot. Unit: MiB."""


class ProcessFile(Frozen):
    """`agent.json`: the process that serves the host."""

    pid: int
    started: int


class HangRecord(Frozen):
    """`hang.json`: the last time that an agent of this host hung, and ended itself."""

    at: float
    """Wall clock of the host."""


class FaultRecord(Frozen):
    """`fault.json`: the last fault of a game day."""

    done: FaultDone
    frozen: ProcessFile | None = None
    """The process that is stopped until `thaws_at`."""
    thaws_at: float = 0.0
    """When the process is continued. Monotonic clock of the machine."""


class UnitFolder:
    """`hosts/<h>/units/<unit>`: the files of one unit."""

    def __init__(self, path: Path, damaged: set[Path]) -> None:
        """Use `path`, which `make` creates.

        `damaged` collects the unreadable files that were logged, so that each is logged once.
        """
        self.path = path
        self._damaged = damaged
        self.id = UnitId(path.name)
        self.log = path / "log"
        self.rotated_log = _rotated(self.log)
        self.scratch = path / "scratch"

    def make(self) -> None:
        """Create the folder, and remove the files of an earlier start."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        if self.kill_reason() is not None:
            # `log.1` is as large as the log had grown: the unit would exceed its disk quantum
            # again.
            self.rotated_log.unlink(missing_ok=True)
        for name in ("exit", "pid", "session", "ended_for"):
            (self.path / name).unlink(missing_ok=True)

    def record(self) -> UnitRecord | None:
        """Return the content of `unit.json`; None if the file is absent or unreadable."""
        return _read(self.path / "unit.json", UnitRecord, self._damaged)

    def write_record(self, record: UnitRecord) -> None:
        """Write `unit.json`."""
        write_private(self.path / "unit.json", record.model_dump_json(indent=1))

    def main(self) -> Process | None:
        """Return the unit's main process, from the launch script's file `pid`."""
        numbers = self._numbers("pid")
        return Process(*numbers) if numbers else None

    def session(self) -> Process | None:
        """Return the leader of the unit's session: the shell that writes the main process's exit
        status.
        """
        numbers = self._numbers("session")
        return Process(*numbers) if numbers else None

    def _numbers(self, name: str) -> tuple[int, int] | None:
        try:
            pid, started = map(int, (self.path / name).read_text().split())
        except (OSError, ValueError):
            return None
        return pid, started

    def exit_status(self) -> int | None:
        """Return the exit status of the main process; None if the shell has not written one."""
        try:
            return int((self.path / "exit").read_text())
        except (OSError, ValueError):
            return None

    def kill_reason(self) -> str | None:
        """Return the fault for which the agent killed the unit; None without a fault."""
        try:
            return (self.path / "ended_for").read_text()
        except OSError:
            return None

    def write_kill_reason(self, reason: str) -> None:
        """Write the fault for which the agent kills the unit to `ended_for`."""
        write_private(self.path / "ended_for", reason)

    def last_line(self) -> str:
        """Return the last line of the log with letters; no notice of the JVM, and no place in code.

        It may be in `log.1`, if the log was moved a moment ago. At most 300 characters.
        """
        lines = (*_last_lines(self.rotated_log), *_last_lines(self.log))
        return next(
            (
                line.strip()[:300]
                for line in reversed(lines)
                if re.search(r"\w", line) and not is_jvm_notice(line) and not STACK_FRAME.match(line)
            ),
            "",
        )

    def cap_log(self) -> None:
        """Move a log over 5 MiB to `log.1`.

        The log is copied and truncated, because the unit keeps the file open and appends to it.
        """
        try:
            if self.log.stat().st_size > LOG_BYTES:
                shutil.copyfile(self.log, self.rotated_log)
                os.truncate(self.log, 0)
        except OSError as error:
            log.warning(
                "a unit's log is over 5 MiB and cannot be moved to log.1; the agent retries",
                log=str(self.log),
                error=str(error),
            )

    def disk_bytes(self) -> int:
        """Return the disk space of the unit's files, without deleted files that are still open.

        Unit: bytes.
        """
        blocks: dict[tuple[int, int], int] = {}
        for path, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):  # the file was deleted meanwhile
                    stat = (Path(path) / name).lstat()
                    blocks[stat.st_dev, stat.st_ino] = stat.st_blocks
        return sum(blocks.values()) * BLOCK_BYTES

    def remove(self) -> None:
        """Remove the unit's files; its logs move to `ended`, which keeps those of 20 units."""
        ended = self.path.parent.parent / "ended"
        ended.mkdir(exist_ok=True)
        if self.log.exists():
            kept = ended / f"{self.id}.log"
            self.log.replace(kept)
            if self.rotated_log.exists():
                self.rotated_log.replace(_rotated(kept))
            else:
                _rotated(kept).unlink(missing_ok=True)
            for old_log in sorted(ended.glob("*.log"), key=lambda path: path.stat().st_mtime)[:-ENDED_LOGS]:
                old_log.unlink()
                _rotated(old_log).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


def _rotated(log_file: Path) -> Path:
    return log_file.with_name(f"{log_file.name}.1")


def _last_lines(log_file: Path) -> list[str]:
    """Return the lines in the last 8 KiB of a file; none if it cannot be read."""
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, log_file.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


class HostFolder:
    """`SLUICE_HOME/hosts/<h>`: the files of one host's agent."""

    def __init__(self, home: Path, host: str) -> None:
        self.host = host
        self.path = home / "hosts" / host
        self._damaged: set[Path] = set()
        """Unreadable files that were logged."""

    def make(self) -> None:
        """Create the folder."""
        (self.path / "units").mkdir(parents=True, exist_ok=True)

    def credential(self) -> HostCredential:
        """Return the secret that proves this host's agent to ZooKeeper.

        The agent's first start makes the secret; no other machine has it.
        """
        file = self.path / "credential"
        secret = file.read_text(errors="replace").strip() if file.exists() else None
        if secret is not None and CREDENTIAL.fullmatch(secret):
            return HostCredential(self.host, secret)
        if secret is not None:
            log.warning(
                "the host's credential file is damaged; the agent makes a new credential, which ZooKeeper "
                "does not know yet. If ZooKeeper refuses the agent, an operator runs: "
                "sluice access --forget <host>",
                host=self.host,
                file=str(file),
            )
        secret = secrets.token_urlsafe(CREDENTIAL_BYTES)
        write_private(file, secret)
        return HostCredential(self.host, secret)

    def forget(self) -> None:
        """Delete the credential and the last assignment of a decommissioned host."""
        for name in ("credential", "assignment.json"):
            (self.path / name).unlink(missing_ok=True)

    def agent(self) -> Process | None:
        """Return the last agent process of this host, which may have ended."""
        process = _read(self.path / "agent.json", ProcessFile, self._damaged)
        return None if process is None else Process(process.pid, process.started)

    def write_agent(self, agent: Process) -> None:
        """Write the host's agent process to `agent.json`."""
        write_private(
            self.path / "agent.json", ProcessFile(pid=agent.pid, started=agent.started).model_dump_json()
        )

    def group(self) -> Path | None:
        """Return the delegated control group of the host's units, for processes outside the group.

        None means that the units are in the machine's own tree.
        """
        try:
            group = Path((self.path / "group").read_text())
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return group if group.is_absolute() else None

    def write_group(self, group: Path | None) -> None:
        """Write the delegated control group to `group`; remove the file for None."""
        if group is None:
            (self.path / "group").unlink(missing_ok=True)
        else:
            write_private(self.path / "group", str(group))

    def unit(self, identity: UnitId) -> UnitFolder:
        """Return the folder of one unit."""
        return UnitFolder(self.path / "units" / identity, self._damaged)

    def units(self) -> list[UnitFolder]:
        """Return the folders of all units, sorted by the unit's id."""
        try:
            return [
                UnitFolder(path, self._damaged)
                for path in sorted((self.path / "units").iterdir())
                if path.is_dir()
            ]
        except FileNotFoundError:
            return []

    def assignment(self) -> Assignment:
        """Return the last assignment.

        If its file cannot be read, return all units on this host that have no request to stop.
        """
        assignment = _read(self.path / "assignment.json", Assignment, self._damaged)
        if assignment is not None:
            return assignment
        records = (folder.record() for folder in self.units())
        return Assignment(
            units=tuple(
                record.unit for record in records if record is not None and record.stopping_at is None
            )
        )

    def write_assignment(self, assignment: Assignment) -> None:
        """Write the assignment to `assignment.json`."""
        write_private(self.path / "assignment.json", assignment.model_dump_json(indent=1))

    def reboot(self) -> RebootRecord | None:
        """Return the last requested reboot."""
        return _read(self.path / "reboot.json", RebootRecord, self._damaged)

    def write_reboot(self, record: RebootRecord) -> None:
        """Write the requested reboot to `reboot.json`."""
        write_private(self.path / "reboot.json", record.model_dump_json(indent=1))

    def fault(self) -> FaultRecord | None:
        """Return the last fault of a game day."""
        return _read(self.path / "fault.json", FaultRecord, self._damaged)

    def write_fault(self, record: FaultRecord) -> None:
        """Write the last fault of a game day to `fault.json`."""
        write_private(self.path / "fault.json", record.model_dump_json(indent=1))

    def hang(self) -> HangRecord | None:
        """Return the last time that an agent of this host hung."""
        return _read(self.path / "hang.json", HangRecord, self._damaged)

    def write_hang(self, record: HangRecord) -> None:
        """Write to `hang.json` that this agent hangs."""
        write_private(self.path / "hang.json", record.model_dump_json(indent=1))

    def forget_reboot(self) -> None:
        """Delete `reboot.json`."""
        (self.path / "reboot.json").unlink(missing_ok=True)


def host_names(home: Path) -> list[str]:
    """Return the hosts whose agents have a folder in this home, sorted."""
    hosts = home / "hosts"
    return sorted(path.name for path in hosts.iterdir() if path.is_dir()) if hosts.is_dir() else []


@contextmanager
def log_write_errors(content: str) -> Iterator[None]:
    """Log an OSError of the block and go on.

    An agent that did not start because the disk is full would make its host count as lost.
    """
    try:
        yield
    except OSError as error:
        log.warning(
            "the agent cannot write a file and continues without it; check the disk of SLUICE_HOME",
            content=content,
            error=str(error),
        )


def _read(path: Path, model: type[M], damaged: set[Path]) -> M | None:
    """Return a file's content; None if the file is absent or unreadable.

    An unreadable file is logged once.
    """
    try:
        content = model.model_validate_json(path.read_bytes(), extra="allow")  # fields of a newer version
    except FileNotFoundError:
        content = None
    except (OSError, ValidationError) as error:
        if path not in damaged:
            damaged.add(path)
            log.warning(
                "an unreadable file of the agent is ignored, as if it did not exist",
                file=str(path),
                error=str(error),
            )
        return None
    damaged.discard(path)
    return content
