"""A rolling reboot in the channel: begin it or continue it, and carry out one batch after another.

Its node has what the next step needs, and each batch is one change whose id follows from the node.
So a caller that was killed goes on where it was: no batch begins twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluice_ops.channel import ANY_VERSION, Channel, Write
from sluice_ops.model import paths
from sluice_ops.model.change import REBOOT_HOSTS, ChangeSpec, PartOf, Result, Step
from sluice_ops.model.ids import ChangeId, HostName
from sluice_ops.model.rolling import NOT_BEFORE, RollingReboot
from sluice_ops.model.wording import listed
from sluice_ops.operations import requests, run_nodes
from sluice_ops.operations.alerts import read_alerts, read_requests
from sluice_ops.operations.ends import End, StoppedError, end_of, why_failed
from sluice_ops.planning import rolling
from sluice_ops.planning.rolling import Batch, Begun, HostNow, Turn
from sluice_ops.site.repair_config import WindowConfig
from sluice_ops.snapshot.view import read_view

PLAN_SECONDS = 60.0
"""How long a plan of a batch may take."""


@dataclass(frozen=True)
class Planned:
    """A batch, and the controller's answer to it: a plan, or why it is refused."""

    hosts: tuple[HostName, ...]
    result: Result

    def as_json(self) -> dict[str, Any]:
        """Return the batch and the answer as JSON values."""
        return {"hosts": self.hosts, "ok": self.result.ok, "sentence": self.result.sentence}


def begin(  # noqa: PLR0913 - the fields of the form
    channel: Channel,
    place: str,
    *,
    run: str,
    by: str,
    only_needed: bool,
    now: float,
    dry_run: bool = False,
) -> Begun:
    """Begin a rolling reboot of the hosts at a place, or continue one of the last day.

    A dry run writes nothing. RefusedError if no host is there. ConflictError if another run begins
    at the same time.
    """
    path = paths.rolling_reboot(place)
    read = channel.read(path, RollingReboot)
    wanted = RollingReboot(
        place=place, run=run, by=by, begun_at=now, at=now, earlier_events=rolling.events(read_alerts(channel))
    )
    earlier = None if read is None else read.value
    if earlier is not None and earlier.run != run and earlier.batch:
        end = end_of(channel, change_of(earlier))
        earlier = earlier if end is End.UNDER_WAY else _without_batch(earlier, end)
    begun = rolling.begin(wanted, hosts_now(channel), earlier, only_needed=only_needed)
    if not dry_run:
        write = Write(path, begun.reboot, None if read is None else read.version)
        channel.multi([write, *_forget_old(channel, place, now)])
    return begun


def _forget_old(channel: Channel, place: str, now: float) -> list[Write]:
    """Return the deletion of the rolling reboots elsewhere that were complete a day ago."""
    others = [paths.rolling_reboot(name) for name in channel.children(paths.REBOOTS) if name != place]
    reads = zip(others, channel.read_many(others, RollingReboot), strict=True)
    return [
        Write(path, None, read.version)
        for path, read in reads
        if read is not None and read.value.complete and now - read.value.at > rolling.CONTINUE_SECONDS
    ]


def hosts_now(channel: Channel) -> dict[HostName, HostNow]:
    """Return every registered host as a rolling reboot sees it."""
    return {
        name: HostNow(
            place=host.facts,
            live=host.live,
            state=host.record.state,
            boot=None if host.observed is None else host.observed.boot,
            reboot_needed=host.observed is not None and host.observed.reboot_needed,
        )
        for name, host in read_view(channel).hosts.items()
        if host.facts is not None
    }


def plan(channel: Channel, reboot: RollingReboot, at_once: int, by: str) -> list[Planned]:
    """Have the controller plan each batch that is left, as if each began now."""
    planned = []
    for number, hosts in enumerate(rolling.batches(reboot, hosts_now(channel), at_once)):
        change = requests.change_id("plan", reboot.run, str(reboot.number), str(number))
        ((_, result),) = requests.run(channel, change, spec_of(reboot, hosts), by, PLAN_SECONDS, dry_run=True)
        planned.append(Planned(hosts, result))
    return planned


def refusal(planned: Sequence[Planned]) -> str | None:
    """Return why a batch does not fit, with the next step; None if all fit."""
    return next(
        (
            f"a batch of {', '.join(each.hosts)} is not possible, so nothing began: {each.result.sentence}. "
            "Choose a smaller number at once, or make room"
            for each in planned
            if not each.result.ok
        ),
        None,
    )


def spec_of(reboot: RollingReboot, hosts: Sequence[HostName]) -> ChangeSpec:
    """Return the change that reboots these hosts together."""
    part_of = PartOf(run=_changes(reboot), hosts=tuple(reboot.boots), earlier_events=reboot.earlier_events)
    return ChangeSpec(kind=REBOOT_HOSTS, hosts=tuple(hosts), part_of=part_of)


def change_of(reboot: RollingReboot) -> ChangeId:
    """Return the id of the change of the last batch."""
    return requests.change_id(_changes(reboot), str(reboot.number))


def _changes(reboot: RollingReboot) -> str:
    return f"reboot-{reboot.place}-{reboot.begun_at:.3f}"


def continue_(channel: Channel, place: str, run: str) -> tuple[RollingReboot, bool]:
    """Return the rolling reboot of this run, and whether its last batch is under way.

    A batch that ended well, or came too early, is written down. StoppedError if the batch failed,
    or if another run has taken over.
    """
    path = paths.rolling_reboot(place)
    read = run_nodes.read_own(channel, path, RollingReboot, run)
    reboot = read.value
    if not reboot.batch:
        return reboot, False
    end = end_of(channel, change_of(reboot))
    if end is End.UNDER_WAY:
        return reboot, True
    not_before = None if end is End.WELL else when_to_ask_again(channel, reboot)
    if end is End.BADLY and not_before is None:
        raise StoppedError(failed_batch(reboot, why_failed(channel, change_of(reboot), REBOOT_HOSTS)))
    ended = _without_batch(reboot, end)
    if not_before is not None:
        ended = ended.model_copy(update={"not_before": not_before})
    channel.multi([Write(path, ended, read.version)])
    return ended, False


def when_to_ask_again(channel: Channel, reboot: RollingReboot) -> float | None:
    """Return when the next batch may be posted, if the last one came too early; None: it did not.

    Epoch seconds.
    """
    result = requests.read_result(channel, requests.operation_id(change_of(reboot), Step.PREFLIGHT))
    return None if result is None else result.details.get(NOT_BEFORE)


def _without_batch(reboot: RollingReboot, end: End) -> RollingReboot:
    rebooted = (*reboot.rebooted, *reboot.batch) if end is End.WELL else reboot.rebooted
    return reboot.model_copy(update={"batch": (), "rebooted": rebooted})


def next_turn(
    channel: Channel, reboot: RollingReboot, at_once: int, window: WindowConfig | None, now: float
) -> Turn:
    """Return what the rolling reboot does next, while no batch of it is under way."""
    return rolling.next_turn(
        reboot,
        hosts_now(channel),
        at_once,
        read_alerts(channel),
        read_requests(channel),
        None if window is None else window.opens(now),
        now,
    )


def take(channel: Channel, reboot: RollingReboot, batch: Batch, now: float) -> RollingReboot:
    """Write down the batch that begins; its change is posted next.

    ConflictError if another run has written.
    """
    taken = reboot.model_copy(update={"number": batch.number, "batch": batch.hosts, "at": now})
    return run_nodes.replace(channel, paths.rolling_reboot(reboot.place), reboot, taken)


def first_sentences(begun: Begun) -> list[str]:
    """Return what a run says when it begins: its hosts, those done before, and those left out."""
    reboot = begun.reboot
    lines = [f"reboots, in this order: {listed(reboot.boots) or 'no host'}"]
    if begun.continued:
        since = datetime.fromtimestamp(reboot.begun_at, UTC)
        lines.append(
            f"continues the rolling reboot that {reboot.by} began at {since:%Y-%m-%d %H:%M} UTC: hosts that "
            "have booted since are done"
        )
    return [*lines, *rolling.left_out_sentences(begun.left_out)]


def failed_batch(reboot: RollingReboot, why: str) -> str:
    """Return that a batch failed, and why."""
    return f"batch {reboot.number} ({', '.join(reboot.batch)}) failed and was undone: {why}"


def stopped(reason: str, place: str) -> str:
    """Return why a rolling reboot stopped, its effect and the next step."""
    return (
        f"the rolling reboot of {place} stopped: {reason}. All other hosts are as before. "
        f"To continue with the hosts that are left: `sluice rolling-reboot {place}`, or trigger "
        "rolling_reboot again"
    )


def complete(channel: Channel, reboot: RollingReboot) -> None:
    """Write down that every host is done, so that the next run begins anew.

    Another try of the same run, whose worker was killed just now, finds nothing left to do.
    """
    done = reboot.model_copy(update={"complete": True})
    channel.multi([Write(paths.rolling_reboot(reboot.place), done, ANY_VERSION)])
