"""A drain to empty: the order of the pauses, what comes next, and the receipt. Pure.

Whether a tier may be paused is guessed from its lag. Whether it was empty is proved afterwards:
each paused tier says where it stopped, and the audit where the streams end.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice_ops.model.change import DRAIN_TO_EMPTY, RESUME, ChangeKind
from sluice_ops.model.ids import TierName
from sluice_ops.model.pipeline_drain import DrainReceipt, InputReceipt, PipelineDrain, TierReceipt
from sluice_ops.model.tier import TierSpec, written_by
from sluice_ops.model.wording import counted, listed
from sluice_ops.planning.changes.kinds.drain_to_empty import sources
from sluice_ops.planning.placement.cluster import RefusedError

FRESH_SECONDS = 4.0
"""A lag that was measured so long after the tiers before were paused counts their last records.

Unit: seconds. A wrong clock costs another try at most.
"""
STILL_SECONDS = 70.0
"""A tier that filters seems to lag by the last records that it left out.

After so long without a record, it has read them: a realtime query says once a minute what it has
read.
"""
LOOKS = 3
"""The second of two whole looks of the audit began after the first look that was seen."""


@dataclass(frozen=True)
class TierNow:
    """A tier as a drain to empty sees it in the channel."""

    spec: TierSpec
    asked: bool
    """Whether a person or a drain has asked for the tier to pause or stop."""
    rests: bool
    """Whether the tier has paused or stopped, as its driver reports."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """The offsets at which the tier stopped, by `stream/partition`."""
    stopped_at: float = 0.0
    """When the tier stopped. Wall clock of its host."""
    given_up: str = ""
    """Why the tier was given up; empty: it was not."""
    hindered: str = ""
    """What holds the tier up, such as a service that is away or a hung task; empty: unknown."""


@dataclass(frozen=True)
class Flow:
    """The last figures of a tier's driver."""

    at: float
    lag: int
    rate_in: float
    positions: Mapping[str, int] = field(default_factory=dict)
    """The offsets before which the tier has processed all records, as far as its output shows."""


@dataclass(frozen=True)
class Audit:
    """The audit of a tier."""

    judged: Mapping[str, int]
    """The next offset to judge of each input partition."""
    once: int
    lost: int
    judges: bool
    """Whether the audit counts every record; false for a tier that filters."""
    verdict: str


@dataclass(frozen=True)
class Measured:
    """The figures in PostgreSQL: those of the drivers and of the audit."""

    missing: str = ""
    """Why there are no figures; empty: there are."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """The end of each partition at the audit's last look."""
    look: float | None = None
    """When the audit last looked at one certain tier; None: it has not looked yet."""
    flows: Mapping[TierName, Flow] = field(default_factory=dict)
    audits: Mapping[TierName, Audit] = field(default_factory=dict)
    sinks: Mapping[TierName, int] = field(default_factory=dict)
    """The rows that a tier has written to its sink."""
    replays: tuple[str, ...] = ()
    """The tiers whose records are being reprocessed."""


@dataclass(frozen=True)
class Next:
    """Post this change."""

    kind: ChangeKind
    tiers: tuple[TierName, ...]


@dataclass(frozen=True)
class Look:
    """The audit has looked again. Write that down."""

    at: float


@dataclass(frozen=True)
class Wait:
    """Look again a little later."""

    reason: str


@dataclass(frozen=True)
class Fail:
    """Write down that the drain failed, and why. Then the pauses are taken back."""

    why: str


@dataclass(frozen=True)
class Returned:
    """The drain failed, and no tier is paused by it any more."""

    sentence: str


@dataclass(frozen=True)
class Empty:
    """Nothing is in flight."""

    receipt: DrainReceipt
    sentence: str


Turn = Next | Look | Wait | Fail | Returned | Empty


def order(tiers: Collection[TierSpec]) -> list[tuple[TierName, ...]]:
    """Return the tiers in the order of the pauses: writers before readers, a circle together."""
    before = {tier.name: _writers(tier, tiers) for tier in tiers}
    upstream = {name: _all_before(name, before) for name in before}
    groups = {
        tuple(sorted(other for other in {*upstream[name], name} if _is_circle(name, other, upstream)))
        for name in before
    }
    distance = {tier.name: tier.distance for tier in tiers}
    # a tier has all tiers before its writers before itself, so the number grows along each stream
    return sorted(groups, key=lambda group: (len({*upstream[group[0]], *group}), -distance[group[0]], group))


def _is_circle(name: TierName, other: TierName, upstream: Mapping[TierName, Collection[TierName]]) -> bool:
    return name == other or (other in upstream[name] and name in upstream[other])


def _writers(tier: TierSpec, tiers: Iterable[TierSpec]) -> set[TierName]:
    return {other.name for other in tiers if not {*tier.inputs}.isdisjoint(other.outputs)}


def _all_before(name: TierName, before: Mapping[TierName, Collection[TierName]]) -> set[TierName]:
    all_before: set[TierName] = set()
    left = [*before[name]]
    while left:
        writer = left.pop()
        if writer not in all_before:
            all_before.add(writer)
            left += before[writer]
    return all_before


def refuse(tiers: Sequence[TierNow], measured: Measured) -> None:
    """Raise RefusedError if the pipeline cannot become empty by itself."""
    if not tiers:
        message = "no tier is published, so there is nothing to drain"
        raise RefusedError(message)
    if measured.missing:
        message = f"nobody can tell what is in flight: {measured.missing}. Nothing was paused"
        raise RefusedError(message)
    if measured.replays:
        message = (
            f"old records of {listed(measured.replays)} are being reprocessed, and the replay writes to "
            "its streams. Nothing was paused. Wait for its end, or cancel it: `sluice replay --cancel`"
        )
        raise RefusedError(message)
    specs = [tier.spec for tier in tiers]
    written = written_by(specs)
    for group in order(specs):
        members = [spec for spec in specs if spec.name in group]
        written_in_group = written_by(members)
        for spec in members:
            outside, back = [*{*spec.inputs} - written], {*spec.inputs} & written_in_group
            if outside and back:
                message = (
                    f"{spec.name} reads {listed(outside)} from outside and {listed(sorted(back))}, which "
                    "leads back to it: it cannot stop the one and process the other. Nothing was paused. "
                    f"Stop the senders of {listed(outside)}, wait until `sluice status` shows no lag, then "
                    "run `sluice pause`"
                )
                raise RefusedError(message)
    for tier in tiers:
        if tier.rests and (left := _in_flight(tier, written, measured)):
            message = (
                f"{tier.spec.name} is paused or stopped, and {counted(left, 'record')} of other tiers wait "
                f"for it. Nothing was paused. First: `sluice resume {tier.spec.name}`, or "
                f"`sluice start {tier.spec.name}`"
            )
            raise RefusedError(message)


def next_turn(drain: PipelineDrain, tiers: Sequence[TierNow], measured: Measured, now: float) -> Turn:
    """Return what to do next, while no change of the drain is under way, at the epoch seconds
    `now`.
    """
    if drain.failed:
        return Next(RESUME, drain.paused) if drain.paused else Returned(stopped(drain))
    turn = _turn(drain, tiers, measured)
    until = drain.begun_at + drain.deadline_seconds if drain.until is None else drain.until
    going_back = isinstance(turn, Next) and turn.kind == RESUME
    if now <= until or not (isinstance(turn, Wait | Look) or going_back):
        return turn
    why = turn.reason if isinstance(turn, Wait) else "the audit's next looks are missing"
    return Fail(f"it was not empty after {drain.deadline_seconds:g} s: {why}")


def _turn(drain: PipelineDrain, tiers: Sequence[TierNow], measured: Measured) -> Turn:
    by_name = {tier.spec.name: tier for tier in tiers}
    specs = [tier.spec for tier in tiers]
    groups = order(specs)
    if resumed := [name for name in drain.paused if name in by_name and not by_name[name].asked]:
        return Fail(f"somebody resumed {listed(resumed)}")
    if not drain.number and not all(tier.rests for tier in tiers):
        first = sources(specs)
        return Next(DRAIN_TO_EMPTY, tuple(name for name in first if not by_name[name].rests))
    for group in groups:
        running = [by_name[name] for name in group if not by_name[name].rests]
        if not running:
            continue
        if failed := [f"{tier.spec.name} was given up: {tier.given_up}" for tier in running if tier.given_up]:
            return Fail("; ".join(failed))
        since = max((by_name[name].stopped_at for name in _before(group, specs)), default=0.0)
        holds = [why for tier in running if (why := _hold(tier, written_by(specs), since, measured))]
        if holds:
            return Wait("; ".join(holds))
        return Next(DRAIN_TO_EMPTY, tuple(tier.spec.name for tier in running))
    return _proof(drain, [[by_name[name] for name in group] for group in groups], measured)


def _before(group: Collection[TierName], specs: Collection[TierSpec]) -> set[TierName]:
    return {name for spec in specs if spec.name in group for name in _writers(spec, specs)} - {*group}


def _hold(tier: TierNow, written: set[str], since: float, measured: Measured) -> str:
    """Return why a tier is not empty yet; empty if it seems to be.

    `since` is when the last tier before it stopped.
    """
    if tier.asked:
        return f"{tier.spec.name} is being paused"
    if written.isdisjoint(tier.spec.inputs):
        return ""
    name, more = tier.spec.name, f", and {tier.hindered}" if tier.hindered else ""
    flow, audit = measured.flows.get(name), measured.audits.get(name)
    if measured.missing or flow is None:
        why = measured.missing or "its driver has written no figures"
        return f"the lag of {name} is unknown: {why}{more}"
    if flow.at < since + FRESH_SECONDS:
        return f"the lag of {name} is measured again; {counted(flow.lag, 'record')} were left before{more}"
    # a tier that also reads from outside always lags there: only its other streams count
    only_inside = {*tier.spec.inputs} <= written
    lag = flow.lag if only_inside else _left(tier.spec, flow.positions, written, measured)
    filters = audit is not None and not audit.judges
    if not lag or (filters and flow.rate_in == 0 and flow.at >= since + STILL_SECONDS):
        return ""
    return f"{name} has {counted(lag, 'record')} left, and reads {flow.rate_in:g} a second{more}"


def _proof(drain: PipelineDrain, groups: Sequence[Sequence[TierNow]], measured: Measured) -> Turn:
    """Compare where the tiers stopped with where the streams end, once the audit has looked."""
    if measured.missing or measured.look is None:
        return Wait(f"the ends of the streams are unknown: {measured.missing or 'the audit has not looked'}")
    if len(drain.looks) < LOOKS:
        seen = measured.look in drain.looks
        return Wait("the audit looks where the streams end") if seen else Look(measured.look)
    tiers = [tier for group in groups for tier in group]
    written = written_by(tier.spec for tier in tiers)
    if (again := _resumed_again(drain, groups, written, measured)) is not None:
        return again
    if late := [why for tier in tiers if (why := _unconfirmed(tier, measured))]:
        return Wait("; ".join(late))
    receipt = DrainReceipt(at=measured.look, tiers=tuple(_receipt(tier, written, measured) for tier in tiers))
    return Empty(receipt, sentence(receipt))


def _resumed_again(
    drain: PipelineDrain, groups: Sequence[Sequence[TierNow]], written: set[str], measured: Measured
) -> Turn | None:
    """Return the turn for the first tiers that were paused too early; None if all were empty."""
    for number, group in enumerate(groups):
        left = {tier.spec.name: _in_flight(tier, written, measured) for tier in group}
        if not any(left.values()):
            continue
        later = {tier.spec.name for after in groups[number:] for tier in after}
        again = tuple(name for name in drain.paused if name in later)
        others = [f"{counted(count, 'record')} wait for {name}" for name, count in left.items() if count]
        if {name for name, count in left.items() if count} <= {*again}:
            return Next(RESUME, again)
        return Fail(f"{'; '.join(others)}, which somebody else paused or stopped")
    return None


def _unconfirmed(tier: TierNow, measured: Measured) -> str:
    """Return what the audit has not confirmed of a tier's records; empty if it confirms all."""
    audit = measured.audits.get(tier.spec.name)
    if audit is None or not audit.judges:
        return ""
    left = sum(max(0, tier.positions.get(place, 0) - judged) for place, judged in audit.judged.items())
    return f"the audit has not found the last {counted(left, 'record')} of {tier.spec.name}" if left else ""


def _in_flight(tier: TierNow, written: set[str], measured: Measured) -> int:
    """Return the records of other tiers that a resting tier has not read."""
    return _left(tier.spec, tier.positions, written, measured)


def _left(spec: TierSpec, positions: Mapping[str, int], written: set[str], measured: Measured) -> int:
    inside = {*spec.inputs} & written
    return sum(
        max(0, end - positions.get(place, 0))
        for place, end in measured.ends.items()
        if _stream(place) in inside
    )


def _receipt(tier: TierNow, written: set[str], measured: Measured) -> TierReceipt:
    spec, audit = tier.spec, measured.audits.get(tier.spec.name)
    return TierReceipt(
        tier=spec.name,
        inputs=tuple(
            InputReceipt(
                stream=stream,
                records=_sum(measured.ends, stream),
                read=_sum(tier.positions, stream),
                outside=stream not in written,
            )
            for stream in spec.inputs
        ),
        outputs={stream: _sum(measured.ends, stream) for stream in spec.outputs},
        quarantined=sum(_sum(measured.ends, f"{stream}.quarantine") for stream in spec.inputs),
        sink=measured.sinks.get(spec.name, 0) if spec.state or not spec.outputs else None,
        once=0 if audit is None else audit.once,
        lost=0 if audit is None else audit.lost,
        verdict="" if audit is None else audit.verdict,
    )


def sentence(receipt: DrainReceipt) -> str:
    """Return a receipt in a sentence."""
    waiting = {
        each.stream: max(0, each.left) for tier in receipt.tiers for each in tier.inputs if each.outside
    }
    outside = listed(f"{count} in {stream}" for stream, count in waiting.items() if count)
    lost = sum(tier.lost for tier in receipt.tiers)
    return (
        f"{counted(receipt.in_flight, 'record')} in flight; paused: "
        f"{listed(tier.tier for tier in receipt.tiers)}"
        + (f"; waiting outside: {outside}" if outside else "")
        + (f"; {counted(lost, 'lost record')} not settled: `sluice audit`" if lost else "")
    )


def stopped(drain: PipelineDrain, reason: str = "") -> str:
    """Return why a drain ended before its end, what is paused now, and the next step.

    `reason` is why taking the pauses back stopped, if it did.
    """
    if not reason:
        return (
            f"the drain to empty failed: {drain.failed}. No tier is paused by it any more, and records flow. "
            "Remove the cause, then drain again, with a longer deadline if it only takes longer"
        )
    return (
        f"the drain to empty failed: {drain.failed or reason}. Taking the pauses back stopped: {reason}. "
        f"Still paused: {listed(drain.paused) or 'no tier'}. To go on: `sluice drain-to-empty`, or "
        "`sluice resume`"
    )


def _stream(place: str) -> str:
    return place.rpartition("/")[0]


def _sum(places: Mapping[str, int], stream: str) -> int:
    return sum(offset for place, offset in places.items() if _stream(place) == stream)
