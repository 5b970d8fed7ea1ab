"""The agent's loop. One round reads the assignment, finds the units, decides, acts and reports.

Between two rounds the loop sleeps until the assignment changes or a process ends, at most 10 s.
"""

import os
import select
import time
from collections.abc import Callable

import structlog

from sluice_ops.agent.host.checkup import Checkup
from sluice_ops.agent.host.faults import Faults
from sluice_ops.agent.host.presence import Presence
from sluice_ops.agent.host.processes import Process
from sluice_ops.agent.host.reboots import boot_of, is_reboot_needed
from sluice_ops.agent.host.store import HangRecord, HostFolder
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import (
    SOON_SECONDS,
    ProcessorNeeds,
    observe,
    on_monotonic_clock,
    reconcile,
    timestamps,
)
from sluice_ops.agent.watch.disks import Disks
from sluice_ops.agent.watch.heartbeats import Heartbeats
from sluice_ops.agent.watch.liveness import LOOK_SECONDS
from sluice_ops.agent.watch.neighbours import Neighbours
from sluice_ops.agent.watch.spot_notices import SpotNotices
from sluice_ops.channel.client import Channel, ChannelAwayError, ConflictError
from sluice_ops.model.assignment import Assignment, Observed
from sluice_ops.process.durations import TimestampAges
from sluice_ops.process.watchdog import LoopLimits, Watchdog

log = structlog.get_logger()

FULL_ROUND_SECONDS = 10.0
"""The longest sleep between two rounds of a registered agent."""
CONNECT_SECONDS = 3.0
"""How long the first round waits for ZooKeeper."""
AWAY_ROUND_SECONDS = 1.0
"""The longest sleep between two rounds of an agent that is not registered."""
TROUBLE_SECONDS = 2.0
"""How long after a failed action the agent retries it."""
HANGS = LoopLimits(busy=60.0, idle=10.0)
"""How long a round may take before the watchdog ends the agent.

A round may wait for disks and for commands that it runs. A thread that only sleeps for 10 s will
never continue.
"""


class Agent:
    """The agent of one host. `run` does the work."""

    def __init__(  # noqa: PLR0913 - the agent's parts, each replaceable in tests
        self,
        *,
        channel: Channel,
        presence: Presence,
        process_control: ProcessControl,
        neighbours: Neighbours,
        disks: Disks,
        heartbeats: Heartbeats,
        notices: SpotNotices,
        folder: HostFolder,
        reboot: Callable[[str], None],
        checkup: Checkup,
        reclaim_seconds: float,
    ) -> None:
        self._channel = channel
        self._presence = presence
        self._process_control = process_control
        self._neighbours = neighbours
        self._disks = disks
        self._heartbeats = heartbeats
        self._notices = notices
        self._folder = folder
        self._reboot = reboot
        self._faults = Faults(folder)
        self._checkup = checkup
        self._reclaim_seconds = reclaim_seconds
        self._assignment = folder.assignment()
        self._assignment_on_disk: Assignment | None = None
        self._write_error_logged = False
        self._started_at = time.time()
        self._ages = TimestampAges()
        self._last_hang = folder.hang()
        self._watchdog = Watchdog(
            "agent",
            HANGS,
            ("kazoo",),
            ("subprocess",),
            give_up=lambda: folder.write_hang(HangRecord(at=time.time())),
        )
        self._ending = False
        self._away_since: float | None = None
        self._logged_causes: set[str] = set()
        """The causes of this outage that were logged."""
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        channel.on_wake(self.wake)

    def wake(self) -> None:
        """Start the next round now; safe from signal handlers and from the channel's thread."""
        os.eventfd_write(self._event, 1)

    def end(self) -> None:
        """Have `run` return after this round; the units continue."""
        self._ending = True
        self.wake()

    def run(self) -> None:
        """Do rounds until `end` is called."""
        self._watchdog.start()
        self._notices.start(self.wake)
        self._checkup.start(self.wake)
        try:
            self._await_channel()
            self._go_round()
        finally:
            self._notices.stop()
            self._checkup.stop()
            self._watchdog.stop()

    def _go_round(self) -> None:
        while not self._ending:
            look_again_at = self.round()
            if not self._ending:
                self._sleep(look_again_at)

    def _await_channel(self) -> None:
        """Wait up to 3 s for ZooKeeper, so that a first round without a connection means an
        outage.
        """
        deadline = time.monotonic() + CONNECT_SECONDS
        while not self._channel.connected and not self._ending and time.monotonic() < deadline:
            time.sleep(0.02)

    def round(self) -> float:
        """Do one round; return the latest time of the next round, on the monotonic clock."""
        self._watchdog.turn()
        registered = self._read_assignment()
        units = self._process_control.find()
        self._ages.track(timestamps(units))
        now = time.monotonic()
        decided = reconcile(
            self._assignment,
            [on_monotonic_clock(found_unit, self._ages.first_seen) for found_unit in units],
            now,
            self._reclaim_seconds,
        )
        for action in decided.actions:
            self._process_control.do(action)
        self._process_control.forget_troubles(
            {found_unit.unit.id for found_unit in units} | {unit.id for unit in self._assignment.units}
        )
        self._process_control.cap_logs()
        self._faults.thaw()
        self._neighbours.measure(units)
        ended = self._disks.measure(units)
        if registered:
            self._report()
        next_rounds = [now + (FULL_ROUND_SECONDS if registered else AWAY_ROUND_SECONDS)]
        if decided.look_again_at is not None:
            next_rounds.append(decided.look_again_at)
        if ended:
            next_rounds.append(now + SOON_SECONDS)
        if self._process_control.troubles:
            next_rounds.append(now + TROUBLE_SECONDS)
        return min(next_rounds)

    def _read_assignment(self) -> bool:
        """Read the assignment from the channel; return whether the agent is registered there.

        While ZooKeeper does not answer, the last assignment stays valid.
        """
        if not self._channel.connected:
            self._log_outage(f"no connection to {self._channel.hosts}")
            return False
        try:
            if not self._presence.ensure():
                return False
            assignment = self._presence.assignment(self._assignment)
        except (ChannelAwayError, ConflictError) as error:
            self._log_outage(str(error))
            return False
        if self._away_since is not None:
            log.info(
                "ZooKeeper answers again; the agent follows its assignment",
                outage_seconds=round(time.monotonic() - self._away_since, 1),
            )
            self._away_since = None
            self._logged_causes.clear()
        self._accept(assignment)
        return True

    def _log_outage(self, cause: str) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
        if cause not in self._logged_causes:
            self._logged_causes.add(cause)
            log.warning(
                "ZooKeeper cannot be used; the units of the last assignment continue; the agent retries",
                cause=cause,
                units=len(self._assignment.units),
            )

    def _accept(self, assignment: Assignment) -> None:
        if assignment != self._assignment:
            names = ", ".join(unit.id for unit in assignment.units) or "none"
            log.info("new assignment", units=names, epoch=assignment.epoch)
            self._assignment = assignment
        if assignment != self._assignment_on_disk:
            self._write(assignment)
        if assignment.reboot is not None:
            self._reboot(assignment.reboot)
        if assignment.fault is not None:
            self._faults.inject(assignment.fault)

    def _write(self, assignment: Assignment) -> None:
        """Write the assignment to disk; if that fails, a later round retries."""
        try:
            self._folder.write_assignment(assignment)
        except OSError as error:
            if not self._write_error_logged:
                log.warning(
                    "the assignment cannot be written to disk; the agent retries. "
                    "If the agent restarts while ZooKeeper is away, it continues an older assignment; "
                    "free disk space",
                    folder=str(self._folder.path),
                    error=str(error),
                )
            self._write_error_logged = True
        else:
            self._assignment_on_disk, self._write_error_logged = assignment, False

    def _report(self) -> None:
        units = self._process_control.find()
        reboot = self._folder.reboot()
        observed = Observed(
            epoch=self._assignment.epoch,
            units=observe(
                self._assignment,
                units,
                self._process_control.troubles,
                ProcessorNeeds(self._neighbours.starved, self._neighbours.modest),
                self._started_at,
            ),
            rebooted=reboot.asked if reboot is not None and reboot.done else None,
            fault=self._faults.done,
            boot=boot_of(reboot),
            reboot_needed=is_reboot_needed(),
            findings=self._checkup.findings,
            agent_started=self._started_at,
            agent_hung_at=None if self._last_hang is None else self._last_hang.at,
            limits=self._process_control.limits,
            ends_at=self._notices.ends_at,
            at_risk_since=self._notices.at_risk_since,
            busy_since=self._neighbours.busy_since,
            busy_part=self._neighbours.busy_part,
        )
        try:
            self._presence.report(observed)
        except (ChannelAwayError, ConflictError) as error:
            self._log_outage(str(error))

    def _sleep(self, until: float) -> None:
        """Sleep until `until`, or until a wake-up, the end of a unit's process, or the end of a
        hanging one.

        Heartbeats are checked meanwhile.
        """
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        descriptors = [
            descriptor
            for process in self._process_control.watched()
            if (descriptor := _end_descriptor(process)) is not None
        ]
        try:
            for descriptor in descriptors:
                poll.register(descriptor, select.POLLIN)
            # Checked after the registration: poll reports each later end.
            if self._process_control.has_missed():
                return
            while not poll.poll(max(0.0, min(until - time.monotonic(), LOOK_SECONDS)) * 1000):
                self._watchdog.turn()
                if self._heartbeats.check() or time.monotonic() >= until:
                    break
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return


def _end_descriptor(process: Process) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None if the process has
    ended.
    """
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None
