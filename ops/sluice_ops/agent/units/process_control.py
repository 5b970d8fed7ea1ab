"""The agent's eyes and hands on its host: finds units, and carries out what `reconcile` decided."""

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
SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a process."""

_SCRIPT = """\
# Written by the agent at each start of this unit: it joins the containers, then runs the unit and writes down how it ended.
cd {folder} || exit 1
# In this very shell: while it waits for another, it would forget a unit that has ended already, and so would /proc.
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
    """Return a unit's main process and the one that writes down how it ended, as far as they are there."""
    return [each for each in (folder.main(), folder.session()) if each is not None and each.alive]


class ProcessControl:
    """Everything that touches units of one host."""

    def __init__(self, folder: HostFolder, containers: Containers, installation: Installation | None) -> None:
        """Work in `folder`. Without an installation units can be found and ended, not started."""
        self._folder = folder
        self._containers = containers
        self._installation = installation
        self._boot = boot_id()
        self._children: list[subprocess.Popen[bytes]] = []
        self._records: dict[UnitId, UnitRecord] = {}
        """What was read last of each unit, in case its file cannot be read any more."""
        self.troubles: dict[UnitId, str] = {}
        self.found: tuple[FoundUnit, ...] = ()
        """What the last look has found."""
        self.members: dict[UnitId, frozenset[int]] = {}
        """The processes that were in each unit's container then."""

    @property
    def limits(self) -> str:
        """Say what limits the units have."""
        return self._containers.limits

    # -- finding

    def find(self) -> list[FoundUnit]:
        """Look at every unit there is; write down the end of those that have ended since the last look."""
        self._children = [child for child in self._children if child.poll() is None]
        folders = self._folder.units()
        self._records = {
            folder.id: record for folder in folders if (record := self._record(folder)) is not None
        }
        found = []
        self.members = {}
        for folder in folders:
            if folder.id in self._records:
                found.append(self._find(folder, self._records[folder.id]))
            else:
                self._discard(folder)
        self.found = tuple(found)
        return found

    def _record(self, folder: UnitFolder) -> UnitRecord | None:
        """Return what is known of a unit; a file that cannot be read any more is written anew."""
        record = folder.record()
        if record is None and (record := self._records.get(folder.id)) is not None:
            try:
                folder.keep(record)
            except OSError as error:
                self._is_in_trouble(folder.id, f"what is known of it cannot be written down: {error}")
            else:
                self.troubles.pop(folder.id, None)
        return record

    def watched(self) -> list[Process]:
        """Return the processes whose end the agent has to notice at once."""
        return [each for folder in self._folder.units() for each in _living(folder)]

    def has_missed(self) -> bool:
        """Tell whether a unit has ended since the last look, so that nobody can watch it any more."""
        return any(found.alive and not _living(self._folder.unit(found.unit.id)) for found in self.found)

    def processes(self, unit: UnitId) -> frozenset[int]:
        """Return what runs in a unit's container."""
        session = self._folder.unit(unit).session()
        return self._containers.processes(unit, session.pid if session else None)

    def heartbeat(self, unit: UnitId) -> Path:
        """Return the file in which a driver counts its heartbeats."""
        return self._folder.unit(unit).scratch / HEARTBEAT

    def taken(self, unit: UnitId) -> int:
        """Return how many bytes a unit's files take on the disk."""
        return self._folder.unit(unit).taken()

    def cap_logs(self) -> None:
        """Keep the units' logs small."""
        for folder in self._folder.units():
            folder.cap_log()

    def _find(self, folder: UnitFolder, record: UnitRecord) -> FoundUnit:
        main, session = folder.main(), folder.session()
        here = record.boot == self._boot
        pids = self.members[folder.id] = self._containers.processes(
            folder.id, session.pid if session and here else None
        )
        main_alive = here and main is not None and main.alive
        alive = main_alive or (here and session is not None and session.alive)
        if not alive and record.ended_at is None:
            record = record.model_copy(
                update={"ended_at": time.time(), "exit": self._how_it_ended(folder, record)}
            )
            self._note_end(folder, record)
        known = {each.pid for each in (main, session) if each is not None and each.alive}
        return FoundUnit(
            unit=record.unit,
            alive=alive,
            others=len(pids - known),
            started_at=record.started_at,
            restarts=record.restarts,
            failures=record.failures,
            pid=main.pid if main is not None and main_alive else None,
            stopping_at=record.stopping_at,
            ended_at=record.ended_at,
            exit=record.exit,
        )

    def _note_end(self, folder: UnitFolder, record: UnitRecord) -> None:
        """Write the end down; where the disk is full, at a later look."""
        try:
            folder.keep(record)
        except OSError as error:
            self._is_in_trouble(folder.id, f"its end could not be written down: {error}")
            return
        self.troubles.pop(folder.id, None)
        asked = record.stopping_at is not None
        (log.info if asked else log.warning)("a unit ended", unit=folder.id, exit=record.exit, asked_to=asked)

    def _how_it_ended(self, folder: UnitFolder, record: UnitRecord) -> str:
        status = folder.exit_status()
        if status is None:
            how = (
                "killed with its container" if record.boot == self._boot else "ended when its host restarted"
            )
        elif status > SIGNALLED:
            how = f"killed by signal {status - SIGNALLED}"
        else:
            how = f"exit code {status}"
        if self._containers.ran_out_of_memory(folder.id):
            how += f" (its container was full: quantum.memory is {record.unit.quantum.memory}m)"
        if (why := folder.ended_for()) is not None:
            how += f" ({why})"
        last = folder.last_line()
        return f"{how}: {last}" if last else how

    def _discard(self, folder: UnitFolder) -> None:
        """End a unit of which nothing is known: how it was started, and whether it was asked to end."""
        try:
            if left := self.processes(folder.id):
                log.warning(
                    "ended a unit whose unit.json cannot be read", unit=folder.id, processes=len(left)
                )
                kill_all(left)  # it is removed at a later look, when they are gone
            else:
                self._containers.remove(folder.id)
                folder.remove()
        except OSError as error:
            self._is_in_trouble(folder.id, f"its unit.json cannot be read, and it cannot be removed: {error}")

    def close(self) -> None:
        """Leave nothing of the host behind on this machine but its files."""
        self._containers.close()

    # -- acting

    def do(self, action: Action) -> None:
        """Carry out one action. One that fails is said, kept in `troubles`, and tried again at the next look."""
        identity = action.unit.id if isinstance(action, Start | SetWeights) else action.unit
        try:
            self._do(action)
        except (OSError, RuntimeError) as error:
            self._is_in_trouble(identity, f"{type(action).__name__.lower()} failed: {error}")
        else:
            self.troubles.pop(identity, None)

    def forget_troubles(self, known: AbstractSet[UnitId]) -> None:
        """Forget the troubles of units that are neither assigned nor there any more: nobody tries again."""
        for identity in self.troubles.keys() - known:
            del self.troubles[identity]

    def _is_in_trouble(self, identity: UnitId, reason: str) -> None:
        if self.troubles.get(identity) != reason:
            log.warning("a unit is in trouble", unit=identity, error=reason)
        self.troubles[identity] = reason

    def _do(self, action: Action) -> None:
        match action:
            case Start():
                self._start(action)
            case RequestStop():
                self._ask_to_end(action)
            case Kill():
                self._kill(action.unit)
            case KillForFault():
                log.warning("a unit is ended by its agent", unit=action.unit, why=action.why)
                with log_write_errors("why a unit is ended"):
                    self._folder.unit(action.unit).keep_ended_for(action.why)
                self._kill(action.unit)
            case SetWeights():
                self._containers.set_weights(action.unit)
                self._update(action.unit.id, unit=action.unit)
                log.info("weighed", unit=action.unit.id, quiet=action.unit.quiet)
            case Remove():
                self._records.pop(action.unit, None)
                self._containers.remove(action.unit)
                self._folder.unit(action.unit).remove()
                log.info("unit is gone", unit=action.unit)

    def _start(self, action: Start) -> None:
        installation = self._installation
        if installation is None:
            return
        unit = action.unit
        folder = self._folder.unit(unit.id)
        if left := self.processes(unit.id):
            kill_all(left)
            message = f"processes of an earlier start have still to end: {', '.join(map(str, sorted(left)))}"
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
        folder.keep(
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
        until = time.monotonic() + LAUNCH_SECONDS
        while folder.main() is None and child.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        main = folder.main()
        log.info(
            "started",
            unit=unit.id,
            pid=main.pid if main else None,
            restarts=action.restarts,
            quiet=unit.quiet,
        )

    def _ask_to_end(self, action: RequestStop) -> None:
        main = self._folder.unit(action.unit).main()
        if main is not None:
            main.send(signal.SIGPWR if action.decommission else signal.SIGTERM)
        self._update(action.unit, stopping_at=time.time())
        log.info("asked to finish its tasks" if action.decommission else "asked to end", unit=action.unit)

    def _kill(self, unit: UnitId) -> None:
        pids = self.processes(unit)
        kill_all(pids)
        log.info("killed what was left", unit=unit, processes=len(pids))

    def _update(self, identity: UnitId, **changes: object) -> None:
        folder = self._folder.unit(identity)
        if (record := self._record(folder)) is not None:
            folder.keep(record.model_copy(update=changes))
