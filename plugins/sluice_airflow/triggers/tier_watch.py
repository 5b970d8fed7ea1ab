"""What there is to tell of a tier, from the channel: used by the tier's trigger, and by its task for one look before deferring."""

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
"""A tier that goes above its high watermark again and again is told of so often."""
CATCH_UP_SECONDS = 1800.0
"""A tier that is behind from its start on works off what came while it was stopped: it is told of when that takes longer."""
FIRST_SECONDS = 60.0
"""So soon after a start a tier has looked how far behind it is."""


Kind = Literal["failed", "given_up", "unwanted", "again", "lost", "behind"]


class TierEvent(Frozen):
    """Why the supervising task has to do something."""

    kind: Kind
    incarnation: int
    """The newest incarnation whose failure has been told, this one included."""
    loss: int
    """The number of the newest loss that has been told, this one included."""
    behind: float = 0.0
    """Since when it was behind too far when that was told last, this time included. Wall clock."""
    sentence: str = ""
    error: str = ""


def read_status(channel: Channel, tier: str, *, watch: bool = False) -> TierStatus | None:
    """Return what the controller says of a tier; None while it has said nothing."""
    status = channel.read(paths.CONTROLLER_STATUS, ControllerStatus, watch=watch)
    return None if status is None else status.value.tiers.get(TierName(tier))


def read_wanted(channel: Channel, tier: str, *, watch: bool = False) -> TierWanted:
    """Return what is wanted of a tier."""
    found = channel.read(paths.wanted(tier), TierWanted, watch=watch)
    return TierWanted() if found is None else found.value


def read_stopped(channel: Channel) -> dict[str, str]:
    """Return the tiers that are stopped or paused on purpose, with who wants that."""
    wanted = {tier: read_wanted(channel, tier) for tier in channel.children("/tiers")}
    return {tier: said.by or "nobody" for tier, said in wanted.items() if said.paused or not said.running}


def read_incarnations(channel: Channel, tier: str, *, watch: bool = False) -> list[int]:
    """Return the numbers of all incarnations of a tier that the channel still has."""
    return sorted(
        int(name) for name in channel.children(paths.incarnations(tier), watch=watch) if name.isdigit()
    )


class TierWatch:
    """Looks at one tier again and again, remembering what was noted and told."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        tier: str,
        reported: int,
        restarted: int,
        loss: int,
        behind: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Tell failures of incarnations after `reported` and losses after number `loss` only.

        That it is behind is told when it was not so at `behind`, nor soon after; that it was given up, only when an incarnation after
        `restarted` was tried.
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
        """Return what happened since the last call that a person may want to read, and forget it."""
        notes, self._notes = self._notes, []
        return notes

    def look(self, channel: Channel) -> TierEvent | None:
        """Read the tier's state and return what has to be told of it, if anything; everything read is watched."""
        wanted = read_wanted(channel, self._tier, watch=True)
        owner = channel.read(paths.owner(self._tier), OwnerRecord, watch=True)
        self._note_owner(channel, None if owner is None else owner.value)
        numbers = read_incarnations(channel, self._tier, watch=True)
        loss = channel.read(paths.loss(self._tier), Loss, watch=True)
        if loss is not None and loss.value.number > self._loss:
            self._loss = loss.value.number
            return self._event("lost", loss.value.sentence)
        if (
            not wanted.running
        ):  # before its failures: what ends on purpose may well end badly, and that is no news
            return self._event("unwanted", f"{wanted.by or 'nobody'} wants it stopped")
        failed = self._first_failure(channel, numbers)
        newest = max(numbers, default=0)
        status = read_status(channel, self._tier, watch=True)
        if status is not None and status.state is TierState.FAILED and newest > self._restarted:
            last = status.error or (failed.error if failed else "") or "its drivers left no message"
            return self._event("given_up", status.sentence, last, newest)
        if failed is not None:
            return failed
        pressure = None if status is None else status.pressure
        # another time, whichever way a clock has jumped in between
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
        """Tell whether a tier that is behind has been so since it began to run, which is not long ago."""
        if owner is None or owner.value.owner is None or pressure.lag is None:
            return False
        said = channel.read(paths.report(self._tier, owner.value.owner), IncarnationReport)
        if said is None or said.value.state is not State.RUNNING:
            return False
        began = said.value.since
        return abs(pressure.since - began) < FIRST_SECONDS and abs(self._clock() - began) < CATCH_UP_SECONDS

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
                    report.value.error or "it left no message",
                )
        return None
