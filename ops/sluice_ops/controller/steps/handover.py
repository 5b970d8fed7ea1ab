"""The steps prepare and cut: start the next incarnations, then hand each tier over.

The tier nearest the pipeline's end is handed over first.
"""

from dataclasses import replace

from sluice_ops.controller.outcome import Done, Failed, Outcome, Waiting
from sluice_ops.controller.pass_state import Draft
from sluice_ops.controller.policies import burst_readiness, health, resize_in_place, spares
from sluice_ops.controller.policies.batch import awaited
from sluice_ops.controller.policies.capacity import cluster_of_draft
from sluice_ops.controller.steps.preflight import describe, refused_by_check
from sluice_ops.model.assignment import HostState, driver_id
from sluice_ops.model.change import ChangeRecord, ChangeSpec, Move, Operation
from sluice_ops.model.ids import ChangeId, Incarnation, TierName
from sluice_ops.model.incarnation import IncarnationSpec, Phase, Placement, State
from sluice_ops.model.status import TierState
from sluice_ops.model.wording import listed, workers
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.lookups import given_up
from sluice_ops.planning.changes.plan import aftermath, differs, has_to_move, plan
from sluice_ops.planning.placement.cluster import Cluster, RefusedError
from sluice_ops.planning.placement.drift import breaches
from sluice_ops.planning.placement.exactly import place_exactly
from sluice_ops.planning.placement.shares import target
from sluice_ops.planning.placement.solver import fits, place_tier


def prepare(draft: Draft, operation: Operation) -> Outcome:
    """Start and warm the next incarnations one after the other, to disturb running tiers little.

    Tiers without room are prepared during the cut, when other incarnations and workers have left.
    """
    change = draft.changes[operation.change]
    _set_draining(draft, change)
    if not change.incarnations:
        refused = _plan_again(draft, change)
        if refused is not None:
            return refused
    waits: list[str] = []
    later: list[TierName] = []
    moves = draft.changes[operation.change].plan.moves
    for move in draft.changes[operation.change].plan.handovers:
        started = _start(draft, operation.change, move)
        if isinstance(started, Failed):
            return started
        if isinstance(started, _NoRoom):
            if not draft.changes[operation.change].incarnations and not any(
                other.in_place for other in moves
            ):
                return Failed(started.verdict)
            later.append(move.tier)
        elif isinstance(started, Waiting):
            waits.append(started.sentence)
        elif not _is_ready(draft, move.tier, started):
            state = health.state(draft, move.tier, started)
            waits.append(f"{move.tier}/{started} to be ready (it is {state})")
            break
    if waits:
        return Waiting(f"waiting for {', '.join(waits)}")
    ready = ", ".join(
        f"{tier}/{number}" for tier, number in draft.changes[operation.change].incarnations.items()
    )
    then = f"; {', '.join(later)} will be prepared during the cut" if later else ""
    return Done(
        f"ready to take over: {ready or 'no incarnation had to start'}{then}",
        {"incarnations": dict(draft.changes[operation.change].incarnations.items())},
    )


def cut(draft: Draft, operation: Operation) -> Outcome:
    """Hand over each tier, or change its workers in place; each is confirmed before the next."""
    handed_over: list[TierName] = []
    resized: list[str] = []
    gaps: dict[str, float] = {}
    for move in draft.changes[operation.change].plan.moves:
        tier = move.tier
        try:
            outcome = (
                _resize(draft, operation.change, move)
                if move.in_place
                else _advance(draft, operation.change, move, handed_over)
            )
        except RefusedError as refused:
            outcome = _make_room(draft, handed_over, _NoRoom(str(refused)))
        if outcome is not None:
            return outcome
        if draft.statuses[tier].state is TierState.FAILED:
            continue  # given up before its next incarnation was prepared
        if move.in_place:
            resized += (
                [f"{tier} goes on with {workers(len(move.after.slots))}"]
                if draft.owner_spec(tier) is not None
                else []
            )
            continue
        handed_over.append(tier)
        report = health.report(
            draft, tier, Incarnation(draft.changes[operation.change].incarnations.get(tier, 0))
        )
        if report is not None and report.gap_seconds is not None:
            gaps[tier] = report.gap_seconds
    if (waits := _why_too_few_work(draft, draft.changes[operation.change].spec)) is not None:
        return Waiting(waits)
    widest = f", widest gap {max(gaps.values()):.2f} s" if gaps else ""
    handed = (
        [f"handed over: {', '.join(handed_over) or 'no tier had to move'}{widest}"]
        if handed_over or not resized
        else []
    )
    proof = burst_readiness.proof(draft, draft.changes[operation.change])
    ready = [] if proof is None else [proof]
    return Done("; ".join((*handed, *resized, *ready)), {"gap_seconds": gaps})


def _resize(draft: Draft, identity: ChangeId, move: Move) -> Outcome | None:
    """Change the workers of a tier in place; None when that is done, and a burst is ready."""
    waits = resize_in_place.resize(draft, identity, move)
    owning = draft.owner_spec(move.tier)
    if waits is not None or owning is None:
        return waits
    return burst_readiness.why_not_ready(draft, draft.changes[identity], move.tier, owning.incarnation)


def _why_too_few_work(draft: Draft, spec: ChangeSpec) -> str | None:
    """Return which tier of a change of numbers has not woken its spares yet; None if none."""
    if not KINDS[spec.kind].resizes:
        return None
    names = (name for name in draft.view.tiers if spec.tier in {None, name})
    return next(filter(None, (spares.why_too_few_work(draft, name) for name in names)), None)


def _advance(draft: Draft, identity: ChangeId, move: Move, handed_over: list[TierName]) -> Outcome | None:
    """Take one tier one step further; None if it is handed over, or has nothing to hand over."""
    tier, started = move.tier, _start(draft, identity, move)
    if isinstance(started, Failed):
        return started
    if isinstance(started, Waiting):
        return Waiting(f"waiting for {started.sentence}")
    if isinstance(started, _NoRoom):
        return _make_room(draft, handed_over, started)
    if draft.statuses[tier].state is TierState.FAILED and tier in draft.changes[identity].receipts:
        return Failed(f"{tier} {draft.statuses[tier].sentence}")
    if draft.statuses[tier].state is TierState.FAILED or not started:
        return None
    waits = _not_ready(draft, identity, tier, started) or _hand_over(draft, identity, tier, started)
    return Waiting(waits) if isinstance(waits, str) else waits


def _not_ready(draft: Draft, identity: ChangeId, tier: TierName, number: Incarnation) -> Outcome | None:
    """Return what a burst's next incarnation has to show before it takes over; None if nothing."""
    record = draft.owners[tier]
    if record.owner == number or record.phase is Phase.CUT or not _is_ready(draft, tier, number):
        return None
    return burst_readiness.why_not_ready(draft, draft.changes[identity], tier, number)


class _NoRoom:
    """The next incarnation finds no room beside the units that run now."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict


def _set_draining(draft: Draft, change: ChangeRecord) -> None:
    if not KINDS[change.spec.kind].empties_host:
        return
    for host in change.spec.named_hosts:
        record = draft.records.get(host)
        if record is not None and record.state in {HostState.UP, HostState.CORDONED}:
            draft.set_host_state(host, HostState.DRAINING, record.by or change.id)


def _plan_again(draft: Draft, change: ChangeRecord) -> Failed | None:
    """Plan again: since preflight, a tier may have started or moved by itself."""
    now = cluster_of_draft(draft)
    try:
        planned = plan(change.spec, now)
    except RefusedError as refused:
        return Failed(str(refused))
    if (failed := refused_by_check(planned, change.spec, now)) is not None:
        return failed
    if planned.moves != change.plan.moves:
        draft.log(f"planned again: {describe(planned)}")
        draft.update_change(change.id, plan=planned)
    return None


def _start(draft: Draft, identity: ChangeId, move: Move) -> Incarnation | Waiting | Failed | _NoRoom:
    """Return the incarnation that takes the tier over; start it if necessary.

    Return 0 if the tier has nothing to hand over.
    """
    tier = move.tier
    record, number = draft.owners[tier], draft.changes[identity].incarnations.get(tier)
    if number is not None and number in {record.owner, record.next}:
        return Incarnation(number)
    once = KINDS[draft.changes[identity].spec.kind].sets_tier
    if (
        number is not None
        and (dropped := why_dropped(draft, tier, Incarnation(number), once=once)) is not None
    ):
        return Failed(dropped)
    owning = draft.owner_spec(tier)
    return Incarnation(0) if owning is None else _start_beside(draft, identity, move, owning)


def _start_beside(
    draft: Draft, identity: ChangeId, move: Move, owning: IncarnationSpec
) -> Incarnation | Waiting | Failed | _NoRoom:
    change, tier, record = draft.changes[identity], move.tier, draft.owners[move.tier]
    now = aftermath(change.spec, cluster_of_draft(draft))
    as_asked = change.spec, now.tiers[tier], target(tier, now.rules), now
    if not has_to_move(*as_asked):
        if KINDS[change.spec.kind].forced and differs(*as_asked):
            return Failed(given_up(change.spec, now.tiers[tier]))
        draft.update_change(identity, incarnations={**change.incarnations, tier: owning.incarnation})
        return owning.incarnation
    if not health.confirmed(draft, tier) or record.phase is not Phase.STEADY or record.next is not None:
        state = health.state(draft, tier, owning.incarnation)
        return Waiting(f"{tier}/{owning.incarnation} to run before the tier is moved (it is {state})")
    try:
        placement = _placement(change.spec, now, move, owning.placement)
    except RefusedError as refused:
        if now.returning:
            return Waiting(f"{awaited(now)}, for {tier}")
        return _NoRoom(str(refused))
    return _begin(draft, identity, tier, placement)


def _begin(draft: Draft, identity: ChangeId, tier: TierName, placement: Placement) -> Incarnation:
    change, old = draft.changes[identity], draft.owners[tier].owner
    number = draft.begin(
        tier,
        placement,
        reason_of(change.spec),
        release=change.spec.release,
        partitions=change.spec.partitions,
    )
    draft.update_owner(tier, next=number, phase=Phase.PREPARE)
    draft.update_change(
        identity,
        incarnations={**change.incarnations, tier: number},
        receipts={**change.receipts, tier: {"old": old, "new": number}},
    )
    draft.log(f"{tier}: incarnation {number} is prepared, {placement.in_words}")
    return number


def _placement(change: ChangeSpec, now: Cluster, move: Move, owning: Placement) -> Placement:
    """Return the planned placement, or the best possible one if the cluster has changed since.

    Raise RefusedError if there is no room, or no longer at the hosts that the change names.
    """
    spec = now.tiers[move.tier].spec
    share = target(move.tier, now.rules)
    own = max(min(1, share.own), share.own - move.short)
    aim = replace(share.with_own(own), extra=share.extra - move.burst_short)
    fixed = KINDS[change.kind].fixed_placement(change, move.tier, owning)
    if fixed is not None:
        place_exactly(spec, aim, owning, fixed, now.hosts)
        return fixed
    if (
        len(move.after.slots) == aim.k
        and fits(spec, move.after, now.hosts)
        and not [*breaches(move.tier, move.after, aim, now.hosts)]
    ):
        return move.after
    return place_tier(spec, aim, owning, now.hosts)[0]


def why_dropped(draft: Draft, tier: TierName, number: Incarnation, *, once: bool) -> str | None:
    """Say why a prepared incarnation ended; None if another one has to be prepared instead.

    This is so if its host was lost, or if the tier has moved on. With `once`, an incarnation that
    took over and ended has failed, even if the tier has moved on: the change was to be tried once.
    """
    spec = draft.incarnations[tier].get(number)
    if (
        spec is None
        or draft.is_lost(spec.placement.driver)
        or ((draft.owners[tier].owner or 0) > number and not once)
    ):
        return None
    report = health.report(draft, tier, number)
    if (reason := draft.deaths.get((tier, number))) is not None:
        why = f", because {reason}"
    else:
        why = f", because of {report.error}" if report is not None and report.error else ""
    when = "ended before it took over" if (draft.owners[tier].owner or 0) < number else "took over and ended"
    log = f"{spec.placement.driver}/{driver_id(tier, number)}"
    return f"{tier}: incarnation {number} {when}{why}; read its log: `sluice logs {log}`"


def _is_ready(draft: Draft, tier: TierName, number: Incarnation) -> bool:
    return number in {0, draft.owners[tier].owner} or health.state(draft, tier, number) is State.READY


def _hand_over(draft: Draft, identity: ChangeId, tier: TierName, number: Incarnation) -> str | None:
    """Take the handover of one tier one step further; return what the tier waits for."""
    record = draft.owners[tier]
    if record.owner == number:
        return (
            None
            if health.confirmed(draft, tier)
            else f"{tier}/{number} owns the tier and is {health.state(draft, tier, number)}"
        )
    if record.phase is Phase.CUT:
        return f"{tier}: incarnation {record.owner} hands over to {number}"
    if health.state(draft, tier, number) is not State.READY:
        return f"{tier}/{number} is {health.state(draft, tier, number)}; it takes over when it is ready"
    if not health.confirmed(draft, tier):
        return f"{tier}/{record.owner} is being paused or resumed; the handover follows"
    missing = _beyond_budget(draft, identity, tier, number)
    if missing is not None:
        return missing
    draft.update_owner(tier, phase=Phase.CUT)
    return f"{tier}: incarnation {record.owner} hands over to {number}"


def _beyond_budget(draft: Draft, identity: ChangeId, tier: TierName, number: Incarnation) -> str | None:
    """Say which lost slots block a handover: the tier would lack more than its budget."""
    allowed, owning = draft.rules.budget.get(tier), draft.owner_spec(tier)
    if allowed is None or owning is None:
        return None
    aim = target(tier, aftermath(draft.changes[identity].spec, cluster_of_draft(draft)).rules)
    slots = draft.incarnations[tier][number].placement.slots
    lost = [host for host in slots if draft.is_lost(host)]
    alive = len(slots) - len(lost)
    if (
        not lost
        or aim.at_work - alive <= allowed
        or alive >= sum(not draft.is_lost(host) for host in owning.placement.slots)
    ):
        return None
    return (
        f"{tier}/{number} to get back the slots that it lost on {listed(sorted(set(lost)))}: "
        f"{aim.at_work - alive} of {aim.at_work} would be away, budget.{tier} allows {allowed}"
    )


def _make_room(draft: Draft, handed_over: list[TierName], no_room: _NoRoom) -> Outcome:
    """Release old incarnations of handed-over tiers, so that the next tier finds room."""
    freed = [
        tier
        for tier in handed_over
        if any(_is_old(draft, tier, spec.incarnation) for spec in draft.unretired(tier))
    ]
    if not freed:
        return Failed(no_room.verdict)
    for tier in freed:
        for spec in draft.unretired(tier):
            if _is_old(draft, tier, spec.incarnation):
                draft.retire(tier, spec.incarnation)
    return Waiting(f"room is short: the old incarnations of {', '.join(freed)} are released first")


def _is_old(draft: Draft, tier: TierName, number: Incarnation) -> bool:
    return number not in {draft.owners[tier].owner, draft.owners[tier].standby}


def reason_of(spec: ChangeSpec) -> str:
    """Return the reason of an incarnation: the change in words."""
    targets = [f"to {part}" for part in (spec.to, spec.k, spec.release, spec.partitions) if part is not None]
    subject = [*spec.named_hosts, *spec.named_tiers, *spec.workers, *targets, spec.shift]
    return " ".join([str(spec.kind), *(str(part) for part in subject if part is not None)])
