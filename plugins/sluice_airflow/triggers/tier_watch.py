"""Events of a tier that its Airflow task reports, read from the control channel.

Used by `TierTrigger`.
"""

import time
from collections.abc import Callable
from typing import Literal

from sluice_ops.channel import Channel, Read
from sluice_ops.model import paths
from sluice_ops.model.backpressure import Pressure
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord, State, TierWanted
from sluice_ops.model.resources import Frozen
from sluice_ops.model.status import ControllerStatus, Loss, TierState, TierStatus

AGAIN_SECONDS = 1800.0
"""The shortest time between two reports of a tier that exceeds its high watermark again and
again.
"""
CATCH_UP_SECONDS = 1800.0
"""How long a tier may work off the backlog of a stop before its lag is reported."""
FIRST_SECONDS = 60.0
"""A tier has measured its lag within this time after its start."""

Kind = Literal["failed", "given_up", "unwanted", "again", "lost", "behind"]


class TierEvent(Frozen):
    """An event that the supervising task reports."""

    kind: Kind
    incarnation: int
    """The newest incarnation whose failure was reported, this event included."""
    loss: int
    """The number of the newest loss that was reported, this event included."""
    behind: float = 0.0
    """When the lag began that was reported last, this event included. Wall clock."""
    sentence: str = ""
    error: str = ""


def read_status(channel: Channel, tier: str, *, watch: bool = False) -> TierStatus | None:
    """Return the controller's status of a tier; None before the controller has written one."""
    status = channel.read(paths.CONTROLLER_STATUS, ControllerStatus, watch=watch)
    return None if status is None else status.value.tiers.get(TierName(tier))


def read_wanted(channel: Channel, tier: str, *, watch: bool = False) -> TierWanted:
    """Return the requested state of a tier."""
    wanted = channel.read(paths.wanted(tier), TierWanted, watch=watch)
    return TierWanted() if wanted is None else wanted.value


def read_stopped(channel: Channel) -> dict[str, str]:
    """Return the tiers that are stopped or paused on purpose, each with the author of that
    request.
    """
    requested = {tier: read_wanted(channel, tier) for tier in channel.children("/tiers")}
    return {
        tier: wanted.by or "nobody"
        for tier, wanted in requested.items()
        if wanted.paused or not wanted.running
    }


def read_incarnations(channel: Channel, tier: str, *, watch: bool = False) -> list[int]:
    """Return the numbers of a tier's incarnations that the channel still holds, in ascending
    order.
    """
    return sorted(
        int(name) for name in channel.children(paths.incarnations(tier), watch=watch) if name.isdigit()
    )


class TierWatch:
    """Reads one tier again and again, and remembers what was reported and logged."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        tier: str,
        reported: int,
        restarted: int,
        loss: int,
        behind: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Report only what is new.

        New are failures of incarnations after `reported`, losses after number `loss`, a lag that
        began at another time than `behind`, and giving the tier up after an incarnation newer than
        `restarted`.
        """
        self._tier = tier
        self._reported = reported
        self._restarted = restarted
        self._loss = loss
        self._behind = behind
        self._clock = clock
        self._ended: set[int] = set()
        self._owner: int | None = None
        self._notes: list[str] = []

    def notes(self) -> list[str]:
        """Return the log lines since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def look(self, channel: Channel) -> TierEvent | None:
        """Read the tier's state with watches; return the event to report, or None."""
        wanted = read_wanted(channel, self._tier, watch=True)
        owner = channel.read(paths.owner(self._tier), OwnerRecord, watch=True)
        self._note_owner(channel, None if owner is None else owner.value)
        numbers = read_incarnations(channel, self._tier, watch=True)
        loss = channel.read(paths.loss(self._tier), Loss, watch=True)
        if loss is not None and loss.value.number > self._loss:
            self._loss = loss.value.number
            return self._event("lost", loss.value.sentence)
        # before failures: an incarnation that is stopped on purpose may fail at its end, which is
        # no news
        if not wanted.running:
            return self._event("unwanted", f"stop requested by {wanted.by or 'nobody'}")
        failed = self._first_failure(channel, numbers)
        newest = max(numbers, default=0)
        status = read_status(channel, self._tier, watch=True)
        if status is not None and status.state is TierState.FAILED and newest > self._restarted:
            last = status.error or (failed.error if failed else "") or "the drivers left no message"
            return self._event("given_up", status.sentence, last, newest)
        if failed is not None:
            return failed
        pressure = None if status is None else status.pressure
        # compare absolute differences: the wall clock may have jumped in either direction
        if (
            pressure is not None
            and abs(pressure.since - self._behind) > AGAIN_SECONDS
            and not self._catches_up(channel, owner, pressure)
        ):
            self._behind = pressure.since
            return self._event("behind", f"{self._tier} {pressure.sentence}")
        return None

    def _event(self, kind: Kind, sentence: str, error: str = "", incarnation: int | None = None) -> TierEvent:
        number = self._reported if incarnation is None else incarnation
        return TierEvent(
            kind=kind,
            incarnation=number,
            loss=self._loss,
            behind=self._behind,
            sentence=sentence,
            error=error,
        )

    def _catches_up(self, channel: Channel, owner: Read[OwnerRecord] | None, pressure: Pressure) -> bool:
        """Tell whether the tier lags since its start, and started only recently."""
        if owner is None or owner.value.owner is None or pressure.lag is None:
            return False
        report = channel.read(paths.report(self._tier, owner.value.owner), IncarnationReport)
        if report is None or report.value.state is not State.RUNNING:
            return False
        started = report.value.since
        return (
            abs(pressure.since - started) < FIRST_SECONDS and abs(self._clock() - started) < CATCH_UP_SECONDS
        )

    def _note_owner(self, channel: Channel, record: OwnerRecord | None) -> None:
        number = None if record is None else record.owner
        if number is None or number == self._owner:
            return
        spec = channel.read(paths.incarnation(self._tier, number), IncarnationSpec)
        where = "" if spec is None else f" on {spec.value.placement.driver} ({spec.value.reason})"
        before = "" if self._owner is None else f", after incarnation {self._owner}"
        self._notes.append(f"{self._tier}: incarnation {number} owns the tier{before}{where}")
        self._owner = number

    def _first_failure(self, channel: Channel, numbers: list[int]) -> TierEvent | None:
        for number in numbers:
            if number <= self._reported or number in self._ended:
                continue
            report = channel.read(paths.report(self._tier, number), IncarnationReport, watch=True)
            if report is None or report.value.state not in {State.FAILED, State.STOPPED, State.FENCED}:
                continue
            self._ended.add(number)
            if report.value.state is State.FAILED:
                self._reported = number
                return self._event(
                    "failed",
                    f"incarnation {number} of tier {self._tier} failed",
                    report.value.error or "the driver left no message",
                )
        return None
