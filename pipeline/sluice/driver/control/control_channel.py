"""The driver's end of the control channel: orders from the owner record, and the incarnation's
report.

While ZooKeeper does not answer, the driver continues with what it read last.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import structlog

from sluice.driver.control import packed_lineage
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
from sluice_ops.model.load import TierLoad
from sluice_ops.model.release import Release
from sluice_ops.model.routing_epochs import RoutingEpochs, newest
from sluice_ops.model.tier import TierSpec
from sluice_ops.site.site_file import Site

log = structlog.get_logger()

LOOK_SECONDS = 2.0
"""Time between two reads of the owner record without a wake-up, in case a watch missed a change."""
RETRY_SECONDS = 1.0


class ChannelFollower:
    """One incarnation's view of the channel."""

    def __init__(self, channel: Channel, tier: str, incarnation: int, *, leaving: Callable[[], bool]) -> None:
        """Follow `tier` as `incarnation`; `leaving` tells whether the process was asked
        to stop.
        """
        self._channel = channel
        self._tier = tier
        self.incarnation = Incarnation(incarnation)
        self.after_stop = False
        """Whether the tier was stopped on request before this incarnation started."""
        self._leaving = leaving
        self._waker = Waker(channel)
        self._record = OwnerRecord()
        self._version = -1
        self._looked = 0.0
        self._written: IncarnationReport | None = None
        """The report as it is in the channel."""
        self._tried = 0.0
        self._away = False
        self._switch_unsure = False
        """Whether it is unknown if the last switch of routing epochs was written."""
        self._controller_seen = self._controller_asked = time.monotonic()
        now = time.time()
        self.report = IncarnationReport(
            state=State.STARTING,
            since=now,
            pid=os.getpid(),
            spare_workers=(),
            first_tasks={},
            takes_workers=True,
            plans_anew=True,
            reads_packed=True,
            history=((State.STARTING, now),),
        )

    # -- at start

    def wait_for_start(self) -> tuple[TierSpec, IncarnationSpec, Release | None] | None:
        """Return the tier, the incarnation and its release once the channel has them; None if asked
        to stop before.
        """
        logged_at = 0.0
        while not self._leaving():
            try:
                if not self._channel.connected:
                    self._channel.start(seconds=5.0)
                spec = self._channel.read(paths.tier(self._tier), TierSpec)
                mine = self._channel.read(paths.incarnation(self._tier, self.incarnation), IncarnationSpec)
                if spec is not None and mine is not None:
                    name = mine.value.release
                    release = None if name is None else self._channel.read(paths.release(name), Release)
                    # before `read_owner`, which writes the report of this process
                    self.after_stop = (
                        mine.value.start is not None or mine.value.after_stop or self._was_stopped()
                    )
                    self.read_owner()
                    return spec.value, mine.value, None if release is None else release.value
                missing = (
                    f"tier {self._tier!r}"
                    if spec is None
                    else f"incarnation {self.incarnation} of {self._tier!r}"
                )
                reason = f"{missing} is not in the channel"
            except (ChannelAwayError, ConflictError) as error:
                reason = str(error)
            if time.monotonic() - logged_at > 10:  # noqa: PLR2004 — a line now and then
                logged_at = time.monotonic()
                log.warning(
                    "the driver cannot start: its tier or incarnation cannot be read in the channel; "
                    "it retries every second",
                    reason=reason,
                )
            time.sleep(RETRY_SECONDS)
        return None

    def _was_stopped(self) -> bool:
        """Tell whether an earlier process of this incarnation was asked to stop.

        So it is if the platform was stopped: agents that come back start their units again.
        """
        last = self._channel.read(paths.report(self._tier, self.incarnation), IncarnationReport)
        return last is not None and last.value.state is State.STOPPED

    def packs_lineage(self, site: Site) -> bool:
        """Tell whether to write each lineage as one header, as in `packed_lineage.is_written`."""
        return packed_lineage.is_written(self._channel, site)

    # -- orders

    def directive(self) -> Directive:
        """Return what to do now, from the owner record as it was read last."""
        if self._leaving():
            return Directive.EXIT
        return directive(self._record, self.incarnation)

    @property
    def leaving(self) -> bool:
        """Whether the process was asked to stop, as when its host or the platform stops."""
        return self._leaving()

    @property
    def owns(self) -> bool:
        """Whether this incarnation owns the tier."""
        return self._record.owner == self.incarnation

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
        """Whether another incarnation may take the tier over now."""
        return self.owns and self._record.phase is Phase.CUT

    @property
    def record(self) -> OwnerRecord:
        """The owner record as it was read last."""
        return self._record

    @property
    def epoch(self) -> int:
        """The epoch of the last owner record that told this incarnation to run."""
        return self.report.epoch

    @property
    def paused_workers(self) -> frozenset[UnitId]:
        """The slots of this incarnation whose workers are to be paused, while it owns the tier."""
        return frozenset(self._record.paused_workers if self.owns else ())

    @property
    def active_workers(self) -> int | None:
        """How many of this incarnation's workers are to work; None: all that are not paused."""
        return self._record.active

    @property
    def admitted(self) -> float | None:
        """How many records the tier may let in each second, because a later tier lags
        (backpressure); None: the tier is not throttled.
        """
        return None if self._record.held_for is None else self._record.admitted

    @property
    def seconds_without_controller(self) -> float:
        """How long the tier has been throttled without a controller that could end it."""
        return time.monotonic() - self._controller_seen

    def wait(self, seconds: float) -> None:
        """Sleep until the owner record may have changed, or `seconds` are over; then look."""
        self._waker.wait(seconds)
        self.read_owner()

    def wake(self) -> None:
        """End a wait."""
        self._waker.set()

    def read_owner(self) -> None:
        """Read the owner record, and write the report again if the last write failed."""
        try:
            record = self._channel.read(paths.owner(self._tier), OwnerRecord, watch=True)
        except (ChannelAwayError, ConflictError):
            if not self._away:
                log.warning(
                    "ZooKeeper does not answer; the driver continues with the owner record that it read last",
                    owner=self._record.owner,
                    next=self._record.next,
                )
            self._away = True
            return
        if self._away:
            log.info("ZooKeeper answers again")
        self._away = False
        if record is not None:
            self._take(record)
        self._look_for_controller()
        if self._written != self.report and time.monotonic() - self._tried > RETRY_SECONDS:
            self._send()

    def confirmed_owner_record(self) -> OwnerRecord | None:
        """Return the owner record, not older than this call; None if ZooKeeper does not answer or
        has none.
        """
        try:
            self._channel.sync(paths.owner(self._tier))
            record = self._channel.read(paths.owner(self._tier), OwnerRecord)
        except (ChannelAwayError, ConflictError) as error:
            log.info(
                "ZooKeeper does not answer, so the owner record cannot be confirmed; the driver retries",
                error=str(error),
            )
            return None
        if record is not None:
            self._take(record)
        return None if record is None else record.value

    def _take(self, record: Read[OwnerRecord]) -> None:
        self._record, self._version = record.value, record.version
        if directive(record.value, self.incarnation) is Directive.RUN:
            self.report = self.report.model_copy(update={"epoch": record.value.epoch})

    def _look_for_controller(self) -> None:
        """While the tier is throttled, check every LOOK_SECONDS whether a controller runs."""
        now = time.monotonic()
        if self.admitted is None:
            self._controller_seen = now
        elif now - self._controller_asked > LOOK_SECONDS:
            self._controller_asked = now
            try:
                if self._channel.children(paths.LEADER):
                    self._controller_seen = now
            except (ChannelAwayError, ConflictError) as error:
                log.info("ZooKeeper does not tell whether a controller runs", error=str(error))

    def complete_positions(self) -> list[dict[str, int]]:
        """Return the positions before which all output was complete, as incarnations of the tier
        reported them.

        They reported them when they started or settled. This incarnation's own are included.
        """
        complete = [receipt.positions for receipt in _receipts(self.report)]
        try:
            for positions in starts(self._channel, self._tier):
                # one by one, so that positions read before an error count
                complete.append(positions)  # noqa: PERF402
        except (ChannelAwayError, ConflictError):
            log.warning(
                "ZooKeeper does not answer; the starts of earlier incarnations are unknown, and the output "
                "decides"
            )
        return complete

    def receipts(self) -> list[Receipt]:
        """Return the receipts that incarnations of the tier reported at start or when they settled,
        this one's included.
        """
        receipts = _receipts(self.report)
        try:
            receipts += read_receipts(self._channel, self._tier)
        except (ChannelAwayError, ConflictError):
            log.warning("ZooKeeper does not answer; it is unknown which topic ids earlier incarnations read")
        return receipts

    def furthest_stop_receipt(self) -> Receipt | None:
        """Return the furthest receipt of a stop that an incarnation of the tier left, this one
        included.
        """
        receipts = [self.report.stopped_at]
        try:
            for number in self._channel.children(paths.incarnations(self._tier)):
                report = self._channel.read(paths.report(self._tier, int(number)), IncarnationReport)
                receipts.append(None if report is None else report.value.stopped_at)
        except (ChannelAwayError, ConflictError):
            log.warning(
                "ZooKeeper does not answer; the driver uses only the receipts that it has read so far"
            )
        return last_of(receipt for receipt in receipts if receipt is not None)

    def start_offsets(self) -> dict[str, int] | None:
        """Return where this incarnation started, while it runs and owns the tier."""
        started = self.report.started_from
        return (
            started.positions
            if started is not None and self.report.state is State.RUNNING and self.owns
            else None
        )

    # -- routing epochs (`sluice.driver.control.routing_epochs`)

    def agreed_routing(self) -> RoutingEpochs | None:
        """Return the newest routing epochs that incarnations of the tier reported; ChannelAwayError
        if unreadable.
        """
        self._make_sure()
        return newest((self.report.ways, *reported_routing(self._channel, self._tier)))

    def announce_routing(self, routing: RoutingEpochs) -> None:
        """Report the routing epochs with which a run begins."""
        self.note(ways=routing)

    def switch_routing(self, routing: RoutingEpochs) -> bool:
        """Report other routing epochs, unless the owner record has changed; return whether they
        were written.

        Incarnations that are told to run later read them. ChannelAwayError: it is unknown whether
        they were written, and `agreed_routing` finds it out.
        """
        report = self.report.model_copy(update={"ways": routing})
        mine = Write(paths.report(self._tier, self.incarnation), report, ANY_VERSION)
        self._switch_unsure = True
        try:
            self._channel.multi([Guard(paths.owner(self._tier), self._version), mine])
        except (ConflictError, NotAllowedError) as error:
            self._switch_unsure = False
            log.warning(
                "the new routing could not be reported; the run keeps the old routing", error=str(error)
            )
            return False
        self._switch_unsure = False
        self.report = self._written = report
        return True

    def other_writer(self) -> str | None:
        """Return a sentence that names another incarnation with orders to write, now or soon; None
        if none has.

        An incarnation with earlier orders that cannot be reached has lost its right to write in
        Kafka (`sluice.driver.control.write_fence`).
        """
        record = self.confirmed_owner_record()
        if record is None:
            return "the channel is away"
        if record.owner != self.incarnation:
            return f"incarnation {record.owner} owns the tier"
        if record.next is not None or record.phase is not Phase.STEADY:
            return f"incarnation {record.next} is about to take over"
        if record.standby is not None and record.standby_runs:
            return f"incarnation {record.standby} runs beside it"
        return None

    def _make_sure(self) -> None:
        """Read whether the last switch of routing epochs was written, if that is unknown."""
        if self._switch_unsure:
            written = self._channel.read(paths.report(self._tier, self.incarnation), IncarnationReport)
            if written is not None:
                self.report = self.report.model_copy(update={"ways": written.value.ways})
            self._switch_unsure = False

    # -- the report

    def enter(self, state: State, *, error: str | None = None, stopped_at: Receipt | None = None) -> None:
        """Change to a state that the table of transitions allows, and report it."""
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
        """Report changed fields without a change of state."""
        if any(getattr(self.report, key) != value for key, value in changes.items()):
            self._change(changes)

    def report_load(self, load: TierLoad) -> None:
        """Write the tier's load for the scaler; without ZooKeeper, the next one comes soon."""
        with suppress(ChannelAwayError, ConflictError):
            self._channel.put(paths.load(self._tier, self.incarnation), load)

    def _change(self, changes: dict[str, object]) -> None:
        self.report = self.report.model_copy(update=changes)
        self._send()

    def _send(self) -> None:
        self._tried = time.monotonic()
        try:
            self._make_sure()
            self._channel.put(paths.report(self._tier, self.incarnation), self.report)
            self._written = self.report
        except (ChannelAwayError, ConflictError) as error:
            log.warning("the report could not be written to ZooKeeper; it is retried", error=str(error))


def last_of(receipts: Iterable[Receipt]) -> Receipt | None:
    """Return the furthest of a tier's receipts.

    Positions only grow; clocks of two hosts may differ by any time.
    """
    return max(receipts, key=lambda receipt: (sum(receipt.positions.values()), receipt.at), default=None)


def starts(channel: Channel, tier: str) -> Iterator[dict[str, int]]:
    """Yield the positions that incarnations of a tier reported as complete, and those that a person
    skipped.
    """
    wanted = channel.read(paths.wanted(tier), TierWanted)
    if wanted is not None:
        yield wanted.value.skipped
    for receipt in read_receipts(channel, tier):
        yield receipt.positions


def read_receipts(channel: Channel, tier: str) -> Iterator[Receipt]:
    """Yield the receipts that incarnations of a tier reported when they started or settled."""
    for report in _reports(channel, tier):
        yield from _receipts(report)


def _reports(channel: Channel, tier: str) -> Iterator[IncarnationReport]:
    for number in channel.children(paths.incarnations(tier)):
        report = channel.read(paths.report(tier, int(number)), IncarnationReport)
        if report is not None:
            yield report.value


def reported_routing(channel: Channel, tier: str) -> Iterator[RoutingEpochs | None]:
    """Yield the routing epochs that each incarnation of a tier reported."""
    for number in channel.children(paths.incarnations(tier)):
        report = channel.read(paths.report(tier, int(number)), IncarnationReport)
        yield None if report is None else report.value.ways


def _receipts(report: IncarnationReport) -> list[Receipt]:
    return [receipt for receipt in (report.started_from, report.settled) if receipt is not None]
