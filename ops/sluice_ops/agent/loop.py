"""The agent's rounds: follow the channel, look, decide, act, report; sleep until something changes or ends, 10 s at most."""

import os
import select
import time
from collections.abc import Callable

import structlog

from sluice_ops.agent.host.presence import Presence
from sluice_ops.agent.host.processes import Process
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import SOON_SECONDS, observe, on_monotonic_clock, reconcile, timestamps
from sluice_ops.agent.watch.disks import Disks
from sluice_ops.agent.watch.heartbeats import Heartbeats
from sluice_ops.agent.watch.liveness import LOOK_SECONDS
from sluice_ops.agent.watch.neighbours import Neighbours
from sluice_ops.channel.client import Channel, ChannelAwayError, ConflictError
from sluice_ops.model.assignment import Assignment, Observed
from sluice_ops.process.durations import TimestampAges
from sluice_ops.process.watchdog import Limits, Watchdog

log = structlog.get_logger()

FULL_ROUND_SECONDS = 10.0
CONNECT_SECONDS = 3.0
AWAY_ROUND_SECONDS = 1.0
"""How soon an unregistered agent tries again."""
TROUBLE_SECONDS = 2.0
"""How soon an action that failed is tried again."""
HANGS = Limits(busy=60.0, idle=10.0)
"""How long a round may take: it waits for disks, and for commands that it calls. One whose thread only sleeps never goes on."""


class Agent:
    """One host's agent."""

    def __init__(  # noqa: PLR0913 - its parts, each replaceable in tests
        self,
        *,
        channel: Channel,
        presence: Presence,
        process_control: ProcessControl,
        neighbours: Neighbours,
        disks: Disks,
        heartbeats: Heartbeats,
        folder: HostFolder,
        reboot: Callable[[str], None],
        reclaim_seconds: float,
    ) -> None:
        """Assemble it; `run` does the work."""
        self._channel = channel
        self._presence = presence
        self._process_control = process_control
        self._neighbours = neighbours
        self._disks = disks
        self._heartbeats = heartbeats
        self._folder = folder
        self._reboot = reboot
        self._reclaim_seconds = reclaim_seconds
        self._assignment = folder.assignment()
        self._kept: Assignment | None = None
        """What was written to disk of it."""
        self._unkept = False
        """It was said that it cannot be written."""
        self._started_at = time.time()
        self._ages = TimestampAges()
        self._watchdog = Watchdog("agent", HANGS, ("kazoo",), ("subprocess",))
        self._ending = False
        self._away_since: float | None = None
        self._whys: set[str] = set()
        """What has kept it from the channel since then, as far as it was said."""
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        channel.on_wake(self.wake)

    def wake(self) -> None:
        """Look now; safe from signal handlers and from the channel's thread."""
        os.eventfd_write(self._event, 1)

    def end(self) -> None:
        """Leave at the end of this round; the units stay."""
        self._ending = True
        self.wake()

    def run(self) -> None:
        """Go round until told to end."""
        self._watchdog.start()
        try:
            self._await_channel()
            self._go_round()
        finally:
            self._watchdog.stop()

    def _go_round(self) -> None:
        while not self._ending:
            look_again_at = self.round()
            if not self._ending:
                self._sleep(look_again_at)

    def _await_channel(self) -> None:
        """Give the first connection a moment, so that a round without it means an outage."""
        until = time.monotonic() + CONNECT_SECONDS
        while not self._channel.connected and not self._ending and time.monotonic() < until:
            time.sleep(0.02)

    def round(self) -> float:
        """Do one round; return when to look again at the latest, on the monotonic clock."""
        self._watchdog.turn()
        registered = self._follow()
        found = self._process_control.find()
        self._ages.track(timestamps(found))
        now = time.monotonic()
        decision = reconcile(
            self._assignment,
            [on_monotonic_clock(found_unit, self._ages.first_seen) for found_unit in found],
            now,
            self._reclaim_seconds,
        )
        for action in decision.actions:
            self._process_control.do(action)
        self._process_control.forget_troubles(
            {found_unit.unit.id for found_unit in found} | {unit.id for unit in self._assignment.units}
        )
        self._process_control.cap_logs()
        self._neighbours.look(found)
        ended = self._disks.look(found)
        if registered:
            self._tell()
        looks = [now + (FULL_ROUND_SECONDS if registered else AWAY_ROUND_SECONDS)]
        if decision.look_again_at is not None:
            looks.append(decision.look_again_at)
        if ended:
            looks.append(now + SOON_SECONDS)
        if self._process_control.troubles:
            looks.append(now + TROUBLE_SECONDS)
        return min(looks)

    def _follow(self) -> bool:
        """Read the channel; while it is away, what was assigned last stays."""
        if not self._channel.connected:
            self._away(f"no connection to {self._channel.hosts}")
            return False
        try:
            if not self._presence.ensure():
                return False
            assigned = self._presence.assignment(self._assignment)
        except (ChannelAwayError, ConflictError) as error:
            self._away(str(error))
            return False
        if self._away_since is not None:
            log.info("ZooKeeper is back", away_seconds=round(time.monotonic() - self._away_since, 1))
            self._away_since = None
            self._whys.clear()
        self._assign(assigned)
        return True

    def _away(self, why: str) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
        if why not in self._whys:
            self._whys.add(why)
            log.warning(
                "the channel cannot be used: what was assigned last goes on",
                why=why,
                units=len(self._assignment.units),
            )

    def _assign(self, assigned: Assignment) -> None:
        if assigned != self._assignment:
            names = ", ".join(unit.id for unit in assigned.units) or "nothing"
            log.info("assigned", units=names, epoch=assigned.epoch)
            self._assignment = assigned
        if assigned != self._kept:
            self._keep(assigned)
        if assigned.reboot is not None:
            self._reboot(assigned.reboot)

    def _keep(self, assigned: Assignment) -> None:
        """Write down what is assigned; where that fails, again in a later round."""
        try:
            self._folder.keep_assignment(assigned)
        except OSError as error:
            if not self._unkept:
                log.warning(
                    "the assignment could not be kept on disk",
                    folder=str(self._folder.path),
                    error=str(error),
                )
            self._unkept = True
        else:
            self._kept, self._unkept = assigned, False

    def _tell(self) -> None:
        found = self._process_control.find()
        reboot = self._folder.reboot()
        observed = Observed(
            epoch=self._assignment.epoch,
            units=observe(
                self._assignment,
                found,
                self._process_control.troubles,
                self._neighbours.starved,
                self._started_at,
            ),
            rebooted=reboot.asked if reboot is not None and reboot.done else None,
            agent_started=self._started_at,
            limits=self._process_control.limits,
        )
        try:
            self._presence.report(observed)
        except (ChannelAwayError, ConflictError) as error:
            self._away(str(error))

    def _sleep(self, until: float) -> None:
        """Sleep until `until`, a wake-up, the end of any unit's process, or of one that hangs; meanwhile watch the heartbeats."""
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        watches = [watch for watch in map(_watch, self._process_control.watched()) if watch is not None]
        try:
            for watch in watches:
                poll.register(watch, select.POLLIN)
            if self._process_control.has_missed():  # only now: what ends from here on is watched
                return
            while not poll.poll(max(0.0, min(until - time.monotonic(), LOOK_SECONDS)) * 1000):
                self._watchdog.turn()
                if self._heartbeats.look() or time.monotonic() >= until:
                    break
        finally:
            for watch in watches:
                os.close(watch)
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return


def _watch(process: Process) -> int | None:
    """Return a descriptor that becomes readable when the process ends."""
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        return None
