"""A drain to empty in the channel: begin it or continue it, one pause after the other.

Its node has what the next step needs, and each pause is one change whose id follows from the node.
So a caller that was killed goes on where it was, and a drain that failed is always taken back.
"""

from dataclasses import dataclass

from sluice_ops.channel import Channel, Write
from sluice_ops.model import paths
from sluice_ops.model.change import DRAIN_TO_EMPTY, ChangeSpec, PartOf, Result
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.incarnation import IncarnationReport, State
from sluice_ops.model.pipeline_drain import PipelineDrain
from sluice_ops.model.status import TierState
from sluice_ops.operations import requests, run_nodes
from sluice_ops.operations.ends import End, StoppedError, end_of, why_failed
from sluice_ops.planning import pipeline_drain
from sluice_ops.planning.pipeline_drain import Empty, Fail, Look, Measured, Next, Returned, TierNow
from sluice_ops.snapshot.view import TierView, View, read_view

PLAN_SECONDS = 60.0
"""How long the plan of the first change may take."""


@dataclass(frozen=True)
class Begun:
    """A drain that begins or continues, with what a run says first."""

    drain: PipelineDrain
    sentences: tuple[str, ...]


def begin(  # noqa: PLR0913 - the fields of the form
    channel: Channel,
    measured: Measured,
    *,
    run: str,
    by: str,
    deadline: float,
    now: float,
    dry_run: bool = False,
) -> Begun:
    """Begin a drain to empty, or continue one that has not ended, with a new deadline.

    A dry run writes nothing. RefusedError if the pipeline cannot become empty. ConflictError if
    another run begins at the same time.
    """
    read = channel.read(paths.PIPELINE_DRAIN, PipelineDrain)
    earlier = None if read is None else read.value
    if earlier is not None and earlier.run == run:
        return Begun(earlier, ())
    if earlier is not None and not earlier.ended:
        until = None if earlier.until is None else now + deadline
        drain = earlier.model_copy(update={"run": run, "deadline_seconds": deadline, "until": until})
        goes_back = f", and takes the pauses back, because {drain.failed}" if drain.failed else ""
        sentences = [f"continues the drain to empty that {drain.by} began{goes_back}"]
    else:
        tiers = tiers_now(channel)
        pipeline_drain.refuse(tiers, measured)
        drain = PipelineDrain(run=run, by=by, begun_at=now, deadline_seconds=deadline)
        groups = pipeline_drain.order([tier.spec for tier in tiers])
        order = ", ".join(" with ".join(group) for group in groups)
        sentences = [f"pauses, in this order, each tier once it is empty: {order}"]
    if not dry_run:
        channel.multi([Write(paths.PIPELINE_DRAIN, drain, None if read is None else read.version)])
    return Begun(drain, tuple(sentences))


def tiers_now(channel: Channel) -> list[TierNow]:
    """Return every tier as a drain sees it, the entry first."""
    view = read_view(channel)
    tiers = sorted(view.tiers.values(), key=lambda tier: (-tier.spec.distance, tier.spec.name))
    return [_tier(view, tier) for tier in tiers]


def _tier(view: View, tier: TierView) -> TierNow:
    report = None if tier.owner.owner is None else tier.reports.get(tier.owner.owner)
    line = None if view.status is None else view.status.tiers.get(tier.spec.name)
    given_up = line.sentence if line is not None and line.state is TierState.FAILED else ""
    stopped = None if report is None else report.stopped_at
    if stopped is None:  # an incarnation that took over a paused tier has none yet
        others = (other.stopped_at for other in tier.reports.values() if other.stopped_at is not None)
        stopped = max(others, key=lambda receipt: receipt.at, default=None)
    hindered = "" if report is None else report.hung or (f"waits for {report.away}" if report.away else "")
    return TierNow(
        spec=tier.spec,
        asked=tier.wanted.paused or not tier.wanted.running,
        rests=_rests(tier, report),
        positions={} if stopped is None else stopped.positions,
        stopped_at=0.0 if stopped is None else stopped.at,
        given_up=given_up,
        hindered=hindered,
    )


def _rests(tier: TierView, report: IncarnationReport | None) -> bool:
    """Tell whether no incarnation of a tier reads or writes."""
    if not tier.wanted.running:
        return all(spec.retired for spec in tier.incarnations.values())
    beside = tier.reports.get(tier.owner.standby) if tier.owner.standby and tier.owner.standby_runs else None
    reports = [each for each in (report, beside) if each is not None]
    return tier.owner.paused and report is not None and all(each.state is State.PAUSED for each in reports)


def plan(channel: Channel, drain: PipelineDrain, by: str) -> Result:
    """Have the controller plan the first change: whether it may begin, and who has to approve."""
    change = requests.change_id("plan", drain.run)
    spec = ChangeSpec(kind=DRAIN_TO_EMPTY)
    ((_, result),) = requests.run(channel, change, spec, by, PLAN_SECONDS, dry_run=True)
    return result


def spec_of(drain: PipelineDrain, kind: str) -> ChangeSpec:
    """Return the last change. The first one names no tiers: it asks for the whole drain."""
    tiers = () if drain.number == 1 else drain.tiers
    return ChangeSpec(kind=kind, tiers=tiers, part_of=PartOf(run=_changes(drain)))


def change_of(drain: PipelineDrain) -> ChangeId:
    """Return the id of the last change."""
    return requests.change_id(_changes(drain), str(drain.number))


def _changes(drain: PipelineDrain) -> str:
    return f"drain-to-empty-{drain.begun_at:.3f}"


def continue_(channel: Channel, run: str, now: float) -> PipelineDrain:
    """Return the drain of this run; it has a `kind` if a change is to be posted, or under way.

    A change that ended is written down. After a failed one, the pauses are taken back. StoppedError
    if another run has taken over, or if a pause could not be taken back.
    """
    drain = run_nodes.read_own(channel, paths.PIPELINE_DRAIN, PipelineDrain, run).value
    if drain.kind is None:
        return drain
    end = end_of(channel, change_of(drain))
    if end in {End.UNDER_WAY, End.NEVER_BEGUN}:
        return drain
    fields: dict[str, object] = {"kind": None, "looks": ()}
    why = why_failed(channel, change_of(drain), drain.kind) if end is End.BADLY else ""
    if why:
        fields["failed"] = drain.failed or f"{', '.join(drain.tiers) or 'the beginning'}: {why}"
    elif drain.kind == DRAIN_TO_EMPTY:
        fields["paused"] = (*drain.paused, *drain.tiers)
        fields["until"] = drain.until or now + drain.deadline_seconds
    else:
        fields["paused"] = tuple(name for name in drain.paused if name not in drain.tiers)
    after = run_nodes.replace(channel, paths.PIPELINE_DRAIN, drain, drain.model_copy(update=fields))
    if why and drain.failed:
        raise StoppedError(pipeline_drain.stopped(after, why))
    return after


def is_unanswered(channel: Channel, drain: PipelineDrain) -> bool:
    """Tell whether no controller has ended the last change, although its caller gave up."""
    return end_of(channel, change_of(drain)) is End.UNDER_WAY


def next_turn(channel: Channel, drain: PipelineDrain, measured: Measured, now: float) -> pipeline_drain.Turn:
    """Return what comes next, while no change of the drain is under way."""
    return pipeline_drain.next_turn(drain, tiers_now(channel), measured, now)


def note(
    channel: Channel, drain: PipelineDrain, turn: Next | Look | Fail | Returned | Empty
) -> PipelineDrain:
    """Write a turn down; the change of a `Next` is posted afterwards.

    ConflictError if another run has written.
    """
    match turn:
        case Next():
            fields: dict[str, object] = {
                "number": drain.number + 1,
                "kind": turn.kind,
                "tiers": turn.tiers,
                "looks": (),
            }
        case Look():
            fields = {"looks": (*drain.looks, turn.at)}
        case Fail():
            fields = {"failed": turn.why}
        case Returned():
            fields = {"ended": True}
        case Empty():
            fields = {"ended": True, "receipt": turn.receipt}
    return run_nodes.replace(channel, paths.PIPELINE_DRAIN, drain, drain.model_copy(update=fields))
