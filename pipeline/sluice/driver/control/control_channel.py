"""The driver's end of the control channel: what it is told, and what it says.

While the channel is away it goes on with what it read last.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator

import structlog

from sluice_ops.channel.client import (
    ANY_VERSION,
    Channel,
    ChannelAwayError,
    ConflictError,
    Guard,
    NotAllowedError,
    Read,
    Waker,
    Write,
)
from sluice_ops.model import paths
from sluice_ops.model.ids import Incarnation, UnitId
from sluice_ops.model.incarnation import (
    Directive,
    IncarnationReport,
    IncarnationSpec,
    OwnerRecord,
    Phase,
    Receipt,
    State,
    TierWanted,
    advance,
    directive,
)
from sluice_ops.model.release import Release
from sluice_ops.model.routing_epochs import Ways, newest
from sluice_ops.model.tier import TierSpec

log = structlog.get_logger()

LOOK_SECONDS = 2.0
"""How often the owner record is read without having been woken: heals what a watch missed."""
RETRY_SECONDS = 1.0


class Follow:
    """One incarnation's view of the channel."""

    def __init__(self, channel: Channel, tier: str, me: int, *, leaving: Callable[[], bool]) -> None:
        """Follow `tier` as incarnation `me`; `leaving` tells whether the process was asked to end."""
        self._channel = channel
        self._tier = tier
        self.me = Incarnation(me)
        self._leaving = leaving
        self._waker = Waker(channel)
        self._record = OwnerRecord()
        self._version = -1
        self._looked = 0.0
        self._said: IncarnationReport | None = None
        self._tried = 0.0
        self._away = False
        self._unsure = False
        """Whether its last word on its ways was written is not known."""
        self._heard = self._asked = time.monotonic()
        now = time.time()
        self.report = IncarnationReport(
            state=State.STARTING, since=now, pid=os.getpid(), history=((State.STARTING, now),)
        )

    # -- at start

    def wait_for_start(self) -> tuple[TierSpec, IncarnationSpec, Release | None] | None:
        """Return what this incarnation is, and its release, as soon as the channel says so; None when asked to end before."""
        said = 0.0
        while not self._leaving():
            try:
                if not self._channel.connected:
                    self._channel.start(seconds=5.0)
                spec = self._channel.read(paths.tier(self._tier), TierSpec)
                mine = self._channel.read(paths.incarnation(self._tier, self.me), IncarnationSpec)
                if spec is not None and mine is not None:
                    named = mine.value.release
                    release = None if named is None else self._channel.read(paths.release(named), Release)
                    self.look()
                    return spec.value, mine.value, None if release is None else release.value
                missing = (
                    f"tier {self._tier!r}" if spec is None else f"incarnation {self.me} of {self._tier!r}"
                )
                reason = f"{missing} is not in the channel"
            except (ChannelAwayError, ConflictError) as error:
                reason = str(error)
            if time.monotonic() - said > 10:  # noqa: PLR2004 — a line now and then
                said = time.monotonic()
                log.warning("waiting for the channel", reason=reason)
            time.sleep(RETRY_SECONDS)
        return None

    # -- what it is told

    def told(self) -> Directive:
        """Return what to do now, from the owner record as it was read last."""
        if self._leaving():
            return Directive.EXIT
        return directive(self._record, self.me)

    @property
    def leaving(self) -> bool:
        """Whether the process was asked to end, as on a host or platform that is being stopped."""
        return self._leaving()

    @property
    def owns(self) -> bool:
        """Whether this incarnation owns the tier."""
        return self._record.owner == self.me

    def standby_is_ready(self) -> bool:
        """Tell whether a warm standby could take over at once."""
        number = self._record.standby
        if not self.owns or number is None or self._record.standby_runs:
            return False
        try:
            report = self._channel.read(paths.report(self._tier, number), IncarnationReport)
        except (ChannelAwayError, ConflictError):
            return False
        return report is not None and report.value.state is State.READY

    @property
    def hands_over(self) -> bool:
        """Whether another may take the tier over now."""
        return self.owns and self._record.phase is Phase.CUT

    @property
    def record(self) -> OwnerRecord:
        """The owner record as it was read last."""
        return self._record

    @property
    def epoch(self) -> int:
        """The epoch of the last owner record that had this incarnation run."""
        return self.report.epoch

    @property
    def paused_workers(self) -> frozenset[UnitId]:
        """The slots of this incarnation that are to be paused alone, while it owns the tier."""
        return frozenset(self._record.paused_workers if self.owns else ())

    @property
    def held_back(self) -> bool:
        """Whether to let nothing in, because a tier further on is behind."""
        return self._record.held_for is not None

    @property
    def seconds_without_controller(self) -> float:
        """For how long there has been nobody who could end that. Unit: seconds."""
        return time.monotonic() - self._heard

    def wait(self, seconds: float) -> None:
        """Sleep until something may have changed, then look."""
        self._waker.wait(seconds)
        self.look()

    def wake(self) -> None:
        """End a wait."""
        self._waker.set()

    def look(self) -> None:
        """Read the owner record, and say again what could not be said."""
        try:
            found = self._channel.read(paths.owner(self._tier), OwnerRecord, watch=True)
        except (ChannelAwayError, ConflictError):
            if not self._away:
                log.warning(
                    "the channel is away; going on with what was read last",
                    owner=self._record.owner,
                    next=self._record.next,
                )
            self._away = True
            return
        if self._away:
            log.info("the channel is back")
        self._away = False
        if found is not None:
            self._take(found)
        self._hear()
        if self._said != self.report and time.monotonic() - self._tried > RETRY_SECONDS:
            self._send()

    def confirmed(self) -> OwnerRecord | None:
        """Return the owner record, not older than this call; None where ZooKeeper does not say it."""
        try:
            self._channel.sync(paths.owner(self._tier))
            found = self._channel.read(paths.owner(self._tier), OwnerRecord)
        except (ChannelAwayError, ConflictError) as error:
            log.info("the owner record cannot be confirmed", error=str(error))
            return None
        if found is not None:
            self._take(found)
        return None if found is None else found.value

    def _take(self, found: Read[OwnerRecord]) -> None:
        self._record, self._version = found.value, found.version
        if directive(found.value, self.me) is Directive.RUN:
            self.report = self.report.model_copy(update={"epoch": found.value.epoch})

    def _hear(self) -> None:
        """Look now and then, while it is held back, whether there is a controller."""
        now = time.monotonic()
        if not self.held_back:
            self._heard = now
        elif now - self._asked > LOOK_SECONDS:
            self._asked = now
            try:
                if self._channel.children(paths.LEADER):
                    self._heard = now
            except (ChannelAwayError, ConflictError) as error:
                log.info("whether anybody decides is not known", error=str(error))

    def complete_positions(self) -> list[dict[str, int]]:
        """Return up to where all was out when an incarnation of the tier started or settled, as far as they said; this one's included."""
        found = _said(self.report)
        try:
            for positions in starts(self._channel, self._tier):
                found.append(positions)  # what was heard before the channel went counts
        except (ChannelAwayError, ConflictError):
            log.warning(
                "the channel is away; where earlier incarnations started is not known, the output has to tell"
            )
        return found

    def receipts(self) -> list[Receipt]:
        """Return the receipts by which incarnations of the tier started or settled, as far as they said; this one's included."""
        found = _receipts(self.report)
        try:
            found += read_receipts(self._channel, self._tier)
        except (ChannelAwayError, ConflictError):
            log.warning("the channel is away; which streams earlier incarnations read is not known")
        return found

    def left(self) -> Receipt | None:
        """Return the last receipt that an incarnation of the tier has left, this one included, as far as is known."""
        found = [self.report.stopped_at]
        try:
            for number in self._channel.children(paths.incarnations(self._tier)):
                report = self._channel.read(paths.report(self._tier, int(number)), IncarnationReport)
                found.append(None if report is None else report.value.stopped_at)
        except (ChannelAwayError, ConflictError):
            log.warning("the channel is away; what earlier incarnations have left is not known")
        return last_of(receipt for receipt in found if receipt is not None)

    def began(self) -> dict[str, int] | None:
        """Return where this incarnation started, while it runs and owns the tier."""
        started = self.report.started_from
        return (
            started.positions
            if started is not None and self.report.state is State.RUNNING and self.owns
            else None
        )

    # -- by which ways its records go (`sluice.driver.control.routing_epochs`)

    def agreed_ways(self) -> Ways | None:
        """Return the ways that hold, of what all incarnations of the tier have said; ChannelAwayError where that cannot be read."""
        self._make_sure()
        return newest((self.report.ways, *said_ways(self._channel, self._tier)))

    def announce_ways(self, ways: Ways) -> None:
        """Say by which ways it begins."""
        self.note(ways=ways)

    def switch_ways(self, ways: Ways) -> bool:
        """Say that it takes other ways from now on, unless anybody may have been told to run meanwhile; return whether it is said.

        Whoever is told later reads it. ChannelAwayError where nobody knows whether it is said; `agreed_ways` finds it out.
        """
        report = self.report.model_copy(update={"ways": ways})
        mine = Write(paths.report(self._tier, self.me), report, ANY_VERSION)
        self._unsure = True
        try:
            self._channel.multi([Guard(paths.owner(self._tier), self._version), mine])
        except (ConflictError, NotAllowedError) as error:
            self._unsure = False
            log.warning("it keeps to its ways, for it could not say that it takes others", error=str(error))
            return False
        self._unsure = False
        self.report = self._said = report
        return True

    def other_writer(self) -> str | None:
        """Say who else is told to put out this tier's records, now or soon; None where nobody is.

        Whoever was told to before, and cannot be reached, has lost its right to write in Kafka (`sluice.driver.control.write_fence`).
        """
        record = self.confirmed()
        if record is None:
            return "the channel is away"
        if record.owner != self.me:
            return f"incarnation {record.owner} owns the tier"
        if record.next is not None or record.phase is not Phase.STEADY:
            return f"incarnation {record.next} is about to take over"
        if record.standby is not None and record.standby_runs:
            return f"incarnation {record.standby} runs beside it"
        return None

    def _make_sure(self) -> None:
        """Find out whether its last word on its ways was written."""
        if self._unsure:
            found = self._channel.read(paths.report(self._tier, self.me), IncarnationReport)
            if found is not None:
                self.report = self.report.model_copy(update={"ways": found.value.ways})
            self._unsure = False

    # -- what it says

    def enter(self, state: State, *, error: str | None = None, stopped_at: Receipt | None = None) -> None:
        """Change state, by the table, and report it."""
        advance(self.report.state, state)
        now = time.time()
        changes: dict[str, object] = {
            "state": state,
            "since": now,
            "history": (*self.report.history, (state, now))[-50:],
        }
        if error is not None:
            changes["error"] = error
        if stopped_at is not None:
            changes["stopped_at"] = stopped_at
        log.info("state", before=str(self.report.state), now=str(state), error=error)
        self._change(changes)

    def note(self, **changes: object) -> None:
        """Report something besides a change of state."""
        if any(getattr(self.report, key) != value for key, value in changes.items()):
            self._change(changes)

    def _change(self, changes: dict[str, object]) -> None:
        self.report = self.report.model_copy(update=changes)
        self._send()

    def _send(self) -> None:
        self._tried = time.monotonic()
        try:
            self._make_sure()
            self._channel.put(paths.report(self._tier, self.me), self.report)
            self._said = self.report
        except (ChannelAwayError, ConflictError) as error:
            log.warning("the report could not be written; it is tried again", error=str(error))


def last_of(receipts: Iterable[Receipt]) -> Receipt | None:
    """Return the furthest of a tier's receipts: positions only grow, while the clocks of two hosts may differ by any time."""
    return max(receipts, key=lambda receipt: (sum(receipt.positions.values()), receipt.at), default=None)


def starts(channel: Channel, tier: str) -> Iterator[dict[str, int]]:
    """Yield up to where all was out when incarnations of a tier started or settled, as they said, or is gone, as a person has said."""
    wanted = channel.read(paths.wanted(tier), TierWanted)
    if wanted is not None:
        yield wanted.value.skipped
    for report in _reports(channel, tier):
        yield from _said(report)


def read_receipts(channel: Channel, tier: str) -> Iterator[Receipt]:
    """Yield the receipts by which incarnations of a tier started or settled."""
    for report in _reports(channel, tier):
        yield from _receipts(report)


def _reports(channel: Channel, tier: str) -> Iterator[IncarnationReport]:
    for number in channel.children(paths.incarnations(tier)):
        report = channel.read(paths.report(tier, int(number)), IncarnationReport)
        if report is not None:
            yield report.value


def said_ways(channel: Channel, tier: str) -> Iterator[Ways | None]:
    """Yield by which ways the incarnations of a tier have said that its records go."""
    for number in channel.children(paths.incarnations(tier)):
        report = channel.read(paths.report(tier, int(number)), IncarnationReport)
        yield None if report is None else report.value.ways


def _said(report: IncarnationReport) -> list[dict[str, int]]:
    return [receipt.positions for receipt in _receipts(report)]


def _receipts(report: IncarnationReport) -> list[Receipt]:
    return [receipt for receipt in (report.started_from, report.settled) if receipt is not None]
