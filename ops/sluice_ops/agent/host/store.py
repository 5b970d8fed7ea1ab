"""What an agent keeps on disk: its units, so that the next agent adopts them, and what was assigned last, for when ZooKeeper is away."""

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
from sluice_ops.model.access import Own
from sluice_ops.model.assignment import Assignment, Unit
from sluice_ops.model.ids import UnitId
from sluice_ops.model.resources import Frozen
from sluice_ops.site.files import write_private
from sluice_ops.site.java import is_of_cache

log = structlog.get_logger()

M = TypeVar("M", bound=Frozen)

LOG_BYTES = 5 << 20
"""A unit's log is cut at this size; one older part is kept."""
BLOCK_BYTES = 512
"""Of which the kernel counts what a file takes."""
CREDENTIAL_BYTES = 24
"""Of chance in a credential."""
CREDENTIAL = re.compile(r"[\w-]{32}", re.ASCII)
"""So many as they are written."""


class UnitRecord(Frozen):
    """`unit.json`: what the agent knows about a unit besides what the kernel shows."""

    unit: Unit
    boot: str
    """The machine's boot in which it was started."""
    started_at: float
    restarts: int = 0
    failures: int = 0
    stopping_at: float | None = None
    ended_at: float | None = None
    exit: str | None = None


class RebootRecord(Frozen):
    """`reboot.json`: each asked reboot is done once, across the reboot itself."""

    asked: str
    """The id of the operation."""
    boot: str
    done: bool = False


class ProcessFile(Frozen):
    """`agent.json`: the process that serves the host."""

    pid: int
    started: int


class UnitFolder:
    """`hosts/<h>/units/<unit>`: everything of one unit."""

    def __init__(self, path: Path, damaged: set[Path]) -> None:
        """Use `path`; `make` creates it. Of `damaged` files it was told already."""
        self.path = path
        self._damaged = damaged
        self.id = UnitId(path.name)
        self.log = path / "log"
        self.scratch = path / "scratch"

    def make(self) -> None:
        """Create it, without what an earlier start has left in its scratch."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        if self.ended_for() is not None:
            (self.path / "log.1").unlink(
                missing_ok=True
            )  # as large as the log had grown: it would be ended for that again
        for name in ("exit", "pid", "session", "ended_for"):
            (self.path / name).unlink(missing_ok=True)

    def record(self) -> UnitRecord | None:
        """Read `unit.json`; None when it is absent or cannot be read."""
        return _read(self.path / "unit.json", UnitRecord, self._damaged)

    def keep(self, record: UnitRecord) -> None:
        """Write `unit.json`."""
        write_private(self.path / "unit.json", record.model_dump_json(indent=1))

    def main(self) -> Process | None:
        """Return the main process that the launch script wrote down."""
        numbers = self._numbers("pid")
        return Process(*numbers) if numbers else None

    def session(self) -> Process | None:
        """Return the process that leads the unit's session and writes down how the main one ended."""
        numbers = self._numbers("session")
        return Process(*numbers) if numbers else None

    def _numbers(self, name: str) -> tuple[int, int] | None:
        try:
            pid, started = map(int, (self.path / name).read_text().split())
        except (OSError, ValueError):
            return None
        return pid, started

    def exit_status(self) -> int | None:
        """Return what the shell saw the main process end with."""
        try:
            return int((self.path / "exit").read_text())
        except (OSError, ValueError):
            return None

    def ended_for(self) -> str | None:
        """Return for what the agent has killed it, where it was not asked to end."""
        try:
            return (self.path / "ended_for").read_text()
        except OSError:
            return None

    def keep_ended_for(self, why: str) -> None:
        """Write that down."""
        write_private(self.path / "ended_for", why)

    def last_line(self) -> str:
        """Return the last line of the log that says something."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 8192))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next(
            (
                line.strip()[:300]
                for line in reversed(lines)
                if re.search(r"\w", line) and not is_of_cache(line)
            ),
            "",
        )

    def cap_log(self) -> None:
        """Move a log that has grown too large aside, under the writer's feet: it appends to the same file."""
        try:
            if self.log.stat().st_size > LOG_BYTES:
                shutil.copyfile(self.log, self.path / "log.1")
                os.truncate(self.log, 0)
        except OSError as error:
            log.warning("a log could not be cut", log=str(self.log), error=str(error))

    def taken(self) -> int:
        """Return how many bytes of the disk its files take; what was deleted and is still open does not count."""
        blocks: dict[tuple[int, int], int] = {}
        for path, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):  # it is gone by now
                    seen = (Path(path) / name).lstat()
                    blocks[seen.st_dev, seen.st_ino] = seen.st_blocks
        return sum(blocks.values()) * BLOCK_BYTES

    def remove(self) -> None:
        """Remove everything of the unit, but for its last log, which is kept for people."""
        kept = self.path.parent.parent / "ended"
        kept.mkdir(exist_ok=True)
        if self.log.exists():
            self.log.replace(kept / f"{self.id}.log")
            for old in sorted(kept.iterdir(), key=lambda each: each.stat().st_mtime)[:-20]:
                old.unlink()
        shutil.rmtree(self.path, ignore_errors=True)


class HostFolder:
    """`SLUICE_HOME/hosts/<h>`: everything that one agent keeps."""

    def __init__(self, home: Path, host: str) -> None:
        """Use the folder of `host` below `home`."""
        self.host = host
        self.path = home / "hosts" / host
        self._damaged: set[Path] = set()
        """Files of which was said that they cannot be read."""

    def make(self) -> None:
        """Create it."""
        (self.path / "units").mkdir(parents=True, exist_ok=True)

    def credential(self) -> Own:
        """Return what this host's agent proves with that it is that; made at its first start, and no other machine has it."""
        kept = self.path / "credential"
        found = kept.read_text(errors="replace").strip() if kept.exists() else None
        if found is not None and CREDENTIAL.fullmatch(found):
            return Own(self.host, found)
        if found is not None:
            log.warning(
                "the host's credential is damaged: another is made, which the channel does not know yet",
                file=str(kept),
            )
        made = secrets.token_urlsafe(CREDENTIAL_BYTES)
        write_private(kept, made)
        return Own(self.host, made)

    def agent(self) -> Process | None:
        """Return the last process that served this host."""
        found = _read(self.path / "agent.json", ProcessFile, self._damaged)
        return None if found is None else Process(found.pid, found.started)

    def keep_agent(self, agent: Process) -> None:
        """Remember the process that serves this host."""
        write_private(
            self.path / "agent.json", ProcessFile(pid=agent.pid, started=agent.started).model_dump_json()
        )

    def group(self) -> Path | None:
        """Return the delegated control group that the host's units are in, for whoever looks for them from elsewhere."""
        try:
            found = Path((self.path / "group").read_text())
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return found if found.is_absolute() else None

    def keep_group(self, group: Path | None) -> None:
        """Remember it; None where the machine's own tree is used."""
        if group is None:
            (self.path / "group").unlink(missing_ok=True)
        else:
            write_private(self.path / "group", str(group))

    def unit(self, identity: UnitId) -> UnitFolder:
        """Return the folder of one unit."""
        return UnitFolder(self.path / "units" / identity, self._damaged)

    def units(self) -> list[UnitFolder]:
        """Return the folders of all units that are there."""
        try:
            return [
                UnitFolder(path, self._damaged)
                for path in sorted((self.path / "units").iterdir())
                if path.is_dir()
            ]
        except FileNotFoundError:
            return []

    def assignment(self) -> Assignment:
        """Return what was assigned last; where that cannot be read, what was started here and not asked to end."""
        kept = _read(self.path / "assignment.json", Assignment, self._damaged)
        if kept is not None:
            return kept
        records = (folder.record() for folder in self.units())
        return Assignment(
            units=tuple(
                record.unit for record in records if record is not None and record.stopping_at is None
            )
        )

    def keep_assignment(self, assignment: Assignment) -> None:
        """Remember what is assigned."""
        write_private(self.path / "assignment.json", assignment.model_dump_json(indent=1))

    def reboot(self) -> RebootRecord | None:
        """Return the last reboot that was asked for."""
        return _read(self.path / "reboot.json", RebootRecord, self._damaged)

    def keep_reboot(self, record: RebootRecord) -> None:
        """Remember a reboot."""
        write_private(self.path / "reboot.json", record.model_dump_json(indent=1))

    def forget_reboot(self) -> None:
        """Know of no reboot any more."""
        (self.path / "reboot.json").unlink(missing_ok=True)


def host_names(home: Path) -> list[str]:
    """Return the hosts whose agents have kept something in this home."""
    hosts = home / "hosts"
    return sorted(path.name for path in hosts.iterdir() if path.is_dir()) if hosts.is_dir() else []


@contextmanager
def log_write_errors(what: str) -> Iterator[None]:
    """Go on where something cannot be written down: an agent that does not start for a full disk has its host taken for lost."""
    try:
        yield
    except OSError as error:
        log.warning("it could not be written down", what=what, error=str(error))


def _read(path: Path, model: type[M], damaged: set[Path]) -> M | None:
    """Return what a file says; one that cannot be read is as if it was absent, and that is said once."""
    try:
        found = model.model_validate_json(
            path.read_bytes(), extra="allow"
        )  # what a newer version has added says nothing to this one
    except FileNotFoundError:
        found = None
    except (OSError, ValidationError) as error:
        if path not in damaged:
            damaged.add(path)
            log.warning("a file that cannot be read is ignored", file=str(path), error=str(error))
        return None
    damaged.discard(path)
    return found
