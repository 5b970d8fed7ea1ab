"""Find the units of a host, and start, stop and kill them as `reconcile` decided."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Set as AbstractSet
from pathlib import Path

import structlog

from sluice_ops.agent.host.processes import Process, boot_id, kill_all
from sluice_ops.agent.host.store import HostFolder, UnitFolder, UnitRecord, log_write_errors
from sluice_ops.agent.limits.control_groups import Containers
from sluice_ops.agent.units.commands import HEARTBEAT, Installation, command, environment, resources_file
from sluice_ops.agent.units.reconcile import (
    Action,
    FoundUnit,
    Kill,
    KillForFault,
    Remove,
    RequestStop,
    SetWeights,
    Start,
)
from sluice_ops.model.assignment import UnitKind
from sluice_ops.model.ids import UnitId

log = structlog.get_logger()

LAUNCH_SECONDS = 5.0
"""How long a start waits for the unit's pid file."""
SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a process."""

_SCRIPT = """\
# Written by the agent at each start of this unit. Joins the unit's containers, runs the unit, and
# writes its exit status.
cd {folder} || exit 1
# A function of this shell, not a subshell: while the shell waits for a subshell, a unit that ended
# would disappear from /proc, and the shell would forget its exit status.
started() {{ read -r stat < "/proc/$1/stat"; stat="${{stat##*) }}"; set -- $stat; since="${{20}}"; }}
for procs in {joins}; do echo $$ > "$procs" || exit 1; done
started $$
echo "$$ $since" > session
{command} >> log 2>&1 < /dev/null &
main=$!
started $main
echo "$main $since" > pid
exec 2> /dev/null
wait $main
echo $? > exit
"""


def _living(folder: UnitFolder) -> list[Process]:
    """Return a unit's main process and the shell that writes its exit status, if they are alive."""
    return [process for process in (folder.main(), folder.session()) if process is not None and process.alive]


class ProcessControl:
    """Finds, starts and ends the units of one host."""

    def __init__(self, folder: HostFolder, containers: Containers, installation: Installation | None) -> None:
        """Use the units in `folder`. Without an installation, units cannot be started."""
        self._folder = folder
        self._containers = containers
        self._installation = installation
        self._boot = boot_id()
        self._children: list[subprocess.Popen[bytes]] = []
        self._records: dict[UnitId, UnitRecord] = {}
        """The last record of each unit, in case its file becomes unreadable."""
        self.troubles: dict[UnitId, str] = {}
        """For each unit whose last action failed, the error."""
        self.units: tuple[FoundUnit, ...] = ()
        """The units that the last call of `find` returned."""
        self.members: dict[UnitId, frozenset[int]] = {}
        """The pids in each unit's container at the last call of `find`."""

    @property
    def limits(self) -> str:
        """The limits of the units, or why they have none."""
        return self._containers.limits

    # -- finding

    def find(self) -> list[FoundUnit]:
        """Return all units of the host; record the end of each unit that ended since the last
        call.
        """
        self._children = [child for child in self._children if child.poll() is None]
        folders = self._folder.units()
        self._records = {
            folder.id: record for folder in folders if (record := self._record(folder)) is not None
        }
        units = []
        self.members = {}
        for folder in folders:
            if folder.id in self._records:
                units.append(self._find(folder, self._records[folder.id]))
            else:
                self._discard(folder)
        self.units = tuple(units)
        return units

    def _record(self, folder: UnitFolder) -> UnitRecord | None:
        """Return a unit's record; write its file again if it has become unreadable."""
        record = folder.record()
        if record is None and (record := self._records.get(folder.id)) is not None:
            try:
                folder.write_record(record)
            except OSError as error:
                self._note_trouble(folder.id, f"its unit.json cannot be written: {error}")
            else:
                self.troubles.pop(folder.id, None)
        return record

    def watched(self) -> list[Process]:
        """Return the processes whose end has to wake the agent."""
        return [process for folder in self._folder.units() for process in _living(folder)]

    def has_missed(self) -> bool:
        """Tell whether a unit has ended since the last call of `find`, so its end cannot wake the
        agent.
        """
        return any(
            found_unit.alive and not _living(self._folder.unit(found_unit.unit.id))
            for found_unit in self.units
        )

    def processes(self, unit: UnitId) -> frozenset[int]:
        """Return the pids of the processes in a unit's container."""
        session = self._folder.unit(unit).session()
        return self._containers.processes(unit, session.pid if session else None)

    def heartbeat(self, unit: UnitId) -> Path:
        """Return the file in which a driver counts its heartbeats."""
        return self._folder.unit(unit).scratch / HEARTBEAT

    def disk_bytes(self, unit: UnitId) -> int:
        """Return the disk space of a unit's files. Unit: bytes."""
        return self._folder.unit(unit).disk_bytes()

    def cap_logs(self) -> None:
        """Shorten each unit's log that is larger than 5 MiB."""
        for folder in self._folder.units():
            folder.cap_log()

    def _find(self, folder: UnitFolder, record: UnitRecord) -> FoundUnit:
        main, session = folder.main(), folder.session()
        same_boot = record.boot == self._boot
        pids = self.members[folder.id] = self._containers.processes(
            folder.id, session.pid if session and same_boot else None
        )
        main_alive = same_boot and main is not None and main.alive
        alive = main_alive or (same_boot and session is not None and session.alive)
        if not alive and record.ended_at is None:
            record = record.model_copy(
                update={"ended_at": time.time(), "exit": self._exit_cause(folder, record)}
            )
            self._record_end(folder, record)
        own_pids = {process.pid for process in (main, session) if process is not None and process.alive}
        return FoundUnit(
            unit=record.unit,
            alive=alive,
            others=len(pids - own_pids),
            started_at=record.started_at,
            restarts=record.restarts,
            failures=record.failures,
            pid=main.pid if main is not None and main_alive else None,
            stopping_at=record.stopping_at,
            ended_at=record.ended_at,
            exit=record.exit,
        )

    def _record_end(self, folder: UnitFolder, record: UnitRecord) -> None:
        """Write the unit's end to disk; if the disk is full, a later call retries."""
        try:
            folder.write_record(record)
        except OSError as error:
            self._note_trouble(folder.id, f"its end cannot be written to unit.json: {error}")
            return
        self.troubles.pop(folder.id, None)
        if record.stopping_at is not None:
            log.info("unit ended, as requested", unit=folder.id, exit=record.exit)
        else:
            log.warning("unit ended without a request", unit=folder.id, exit=record.exit)

    def _exit_cause(self, folder: UnitFolder, record: UnitRecord) -> str:
        """Return the cause of a unit's end, and the last line of its log."""
        status = folder.exit_status()
        if status is None:
            cause = (
                "killed with its container" if record.boot == self._boot else "ended when its host restarted"
            )
        elif status > SIGNALLED:
            cause = f"killed by signal {status - SIGNALLED}"
        else:
            cause = f"exit code {status}"
        if self._containers.ran_out_of_memory(folder.id):
            cause += f" (its container was full: quantum.memory is {record.unit.quantum.memory}m)"
        if (reason := folder.kill_reason()) is not None:
            cause += f" ({reason})"
        last_line = folder.last_line()
        return f"{cause}: {last_line}" if last_line else cause

    def _discard(self, folder: UnitFolder) -> None:
        """Kill and remove a unit without a readable record, and so without a known start and
        state.
        """
        try:
            if pids := self.processes(folder.id):
                log.warning(
                    "unit killed: its unit.json cannot be read; the agent starts the unit again if it is "
                    "assigned",
                    unit=folder.id,
                    processes=len(pids),
                )
                kill_all(pids)  # a later call of `find` removes the unit, when these processes are gone
            else:
                self._containers.remove(folder.id)
                folder.remove()
        except OSError as error:
            self._note_trouble(folder.id, f"its unit.json cannot be read, and it cannot be removed: {error}")

    def close(self) -> None:
        """Remove the host's containers; its files stay."""
        self._containers.close()

    # -- acting

    def do(self, action: Action) -> None:
        """Carry out one action.

        If an action fails, the error is logged and kept in `troubles`, and the next round retries.
        """
        unit = action.unit.id if isinstance(action, Start | SetWeights) else action.unit
        try:
            self._do(action)
        except (OSError, RuntimeError) as error:
            self._note_trouble(unit, f"{action.verb} failed: {error}")
        else:
            self.troubles.pop(unit, None)

    def forget_troubles(self, known: AbstractSet[UnitId]) -> None:
        """Forget the troubles of units that are not `known`, that is neither assigned nor on the
        host.
        """
        for unit in self.troubles.keys() - known:
            del self.troubles[unit]

    def _note_trouble(self, unit: UnitId, error: str) -> None:
        if self.troubles.get(unit) != error:
            log.warning("unit has a problem; the agent retries", unit=unit, error=error)
        self.troubles[unit] = error

    def _do(self, action: Action) -> None:
        match action:
            case Start():
                self._start(action)
            case RequestStop():
                self._request_stop(action)
            case Kill():
                self._kill(action.unit)
            case KillForFault():
                log.warning("unit killed by its agent", unit=action.unit, reason=action.reason)
                with log_write_errors("the reason for killing a unit (ended_for)"):
                    self._folder.unit(action.unit).write_kill_reason(action.reason)
                self._kill(action.unit)
            case SetWeights():
                self._containers.set_weights(action.unit)
                self._update(action.unit.id, unit=action.unit)
                log.info("unit's weights set", unit=action.unit.id, quiet=action.unit.quiet)
            case Remove():
                self._records.pop(action.unit, None)
                self._containers.remove(action.unit)
                self._folder.unit(action.unit).remove()
                log.info("unit removed", unit=action.unit)

    def _start(self, action: Start) -> None:
        installation = self._installation
        if installation is None:
            return
        unit = action.unit
        folder = self._folder.unit(unit.id)
        if pids := self.processes(unit.id):
            kill_all(pids)
            message = (
                "processes of an earlier start have been killed and have still to end: "
                f"{', '.join(map(str, sorted(pids)))}"
            )
            raise RuntimeError(message)
        folder.make()
        self._containers.remove(unit.id)
        joins = self._containers.admit(unit)
        if unit.kind is UnitKind.SLOT:
            (folder.scratch / "resources.json").write_text(json.dumps(resources_file(unit)))
        words = command(unit, folder.scratch, installation)
        script = _SCRIPT.format(
            folder=shlex.quote(str(folder.path)), joins=shlex.join(map(str, joins)), command=shlex.join(words)
        )
        (folder.path / "start.sh").write_text(script)
        folder.write_record(
            UnitRecord(
                unit=unit,
                boot=self._boot,
                started_at=time.time(),
                restarts=action.restarts,
                failures=action.failures,
            )
        )
        with folder.log.open("ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", str(folder.path / "start.sh")],
                env=environment(unit, folder.scratch, installation, os.environ),
                cwd=folder.path,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._children.append(child)
        deadline = time.monotonic() + LAUNCH_SECONDS
        while folder.main() is None and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        main = folder.main()
        log.info(
            "unit started",
            unit=unit.id,
            pid=main.pid if main else None,
            restarts=action.restarts,
            quiet=unit.quiet,
        )

    def _request_stop(self, action: RequestStop) -> None:
        main = self._folder.unit(action.unit).main()
        if main is not None:
            main.send(signal.SIGPWR if action.decommission else signal.SIGTERM)
        self._update(action.unit, stopping_at=time.time())
        if action.decommission:
            log.info("stop requested: the slot finishes its tasks and takes no new ones", unit=action.unit)
        else:
            log.info("stop requested", unit=action.unit)

    def _kill(self, unit: UnitId) -> None:
        pids = self.processes(unit)
        kill_all(pids)
        log.info("remaining processes of a unit killed", unit=unit, processes=len(pids))

    def _update(self, identity: UnitId, **changes: object) -> None:
        folder = self._folder.unit(identity)
        if (record := self._record(folder)) is not None:
            folder.write_record(record.model_copy(update=changes))
